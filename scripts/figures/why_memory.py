"""Figures 1 to 3 of the paper: how memory is split, and what reserving it wastes."""

from scripts.figures.svg import PHONE, Drawing

SPLIT = [("weights", 26, "a"), ("KV cache", 12, "b"), ("", 2, "free")]
# Figure 2, per cent of the KV cache: token states, reserved, internal and external fragmentation.
WASTE = {
    "Orca (Max)": [20.4, 13.3, 57.3, 8.9],
    "Orca (Pow2)": [26.8, 17.9, 13.6, 41.6],
    "Orca (Oracle)": [38.2, 25.2, 0.0, 36.6],
    "vLLM": [96.3, 0.0, 0.0, 3.7],
}
KINDS = [("tokens", "a"), ("reserved", "b"), ("internal", "alarm"), ("external, other", "d")]
# Figure 3: slots with a token, slots that will get one, slots that never will.
STRIPS = [("A", 8, 2, 2038), ("B", 4, 1, 507)]


def split() -> Drawing:
    picture = Drawing(PHONE, 92, "40 GB: weights 26, KV cache 12, the rest 2")
    x = 9.0
    for name, gigabytes, fill in SPLIT:
        width = 8.5 * gigabytes
        picture.box(x, 24, width, 34, name, fill)
        if name:
            picture.text(x + width / 2, 72, f"{gigabytes} GB, {100 * gigabytes / 40:.0f} %")
        x += width
    picture.text(x, 10, "activations and the rest: 2 GB, 5 %", anchor="end")
    picture.arrow(x - 8, 17, x - 8, 23)
    return picture


def reservation() -> Drawing:
    picture = Drawing(PHONE, 190, "Two requests in memory that was reserved for the longest output")
    for i, (name, used, later, never) in enumerate(STRIPS):
        y = 30 + 86 * i
        picture.text(10, y - 14, f"request {name}, {used + later + never:,} slots", anchor="start")
        x = 10
        for count, width, fill in ((used, 74, "a"), (later, 48, "b"), (never, 216, "alarm")):
            picture.box(x, y, width, 28, f"{count:,}", fill)
            x += width
        for x, label in ((47, "in use"), (108, "later"), (240, "never: internal fragmentation")):
            picture.text(x, y + 40, label)
    picture.text(PHONE / 2, 182, "(not to scale)")
    return picture


def waste() -> Drawing:
    picture = Drawing(PHONE, 216, "Share of the KV cache that holds tokens, and that is wasted")
    for row, (name, shares) in enumerate(WASTE.items()):
        y = 6 + 44 * row
        picture.text(8, y + 6, name, anchor="start")
        x = 8.0
        for share, (_, fill) in zip(shares, KINDS, strict=True):
            width = 3.4 * share
            if share:
                picture.box(x, y + 14, width, 22, f"{share:g}" if share > 5 else "", fill)
            x += width
    for x, (name, fill) in zip((8, 78, 158, 238), KINDS, strict=True):
        picture.box(x, 190, 14, 14, fill=fill)
        picture.text(x + 19, 197, name, anchor="start")
    return picture


def draw() -> dict[str, Drawing]:
    return {"memory-split": split(), "reservation": reservation(), "reservation-waste": waste()}
