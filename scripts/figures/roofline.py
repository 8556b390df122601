"""The roofline of an H100: what it reaches at each intensity, prefill and decode on it."""

from scripts.figures.plot import Axis, draw_axes, draw_curve
from scripts.figures.svg import INK, PHONE, Drawing

OPERATIONS, BANDWIDTH = 989e12, 3.35e12  # bfloat16 a second; bytes a second (H100 SXM's data sheet)
WORK = (
    ("decode, 1 request", 1, (11, 3)),
    ("decode, 32", 32, (-9, -8)),
    ("prefill, 500", 500, (6, 18)),
)
"""A name, its intensity, and where the name stands, from the dot."""


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 290, "What an H100 reaches at each intensity: the roofline")
    x = Axis([1, 10, 100, 1000, 10000], 40, 336, logarithmic=True)
    y = Axis([1, 10, 100, 1000], 236, 46, logarithmic=True)
    draw_axes(
        picture, x, y, ("", "operations a byte that is read", "10¹² operations a second"), grid=True
    )
    knee, roof = OPERATIONS / BANDWIDTH, OPERATIONS / 1e12
    middle = x.at(knee)
    picture.line([(middle, y.start), (middle, y.at(roof))], INK, width=1, dash="4 3")
    draw_curve(picture, x, y, [(1, BANDWIDTH / 1e12), (knee, roof), (10000, roof)], 0)
    picture.text(middle, y.end - 10, f"the knee: {knee:.0f} tokens", anchor="start")
    for anchor, side, name in (("end", -1, "← memory-bound"), ("start", 1, "compute-bound →")):
        picture.text(middle + 8 * side, y.start - 14, name, anchor=anchor)
    for number, (name, intensity, (right, down)) in enumerate(WORK, 1):
        at = x.at(intensity), y.at(min(intensity * BANDWIDTH, OPERATIONS) / 1e12)
        picture.dot(*at, f"line-{number + 1}")
        anchor = "start" if right > 0 else "end"
        picture.text(at[0] + right, at[1] + down, name, anchor=anchor)
    return {"roofline": picture}
