"""What each rung of the kernel ladder moves and how many programs it has, as counted in work.py."""

from examples.kernel_ladder.work import SHAPES, Work, work
from scripts.figures.svg import PHONE, Drawing

RUNGS = [
    "gather_and_softmax",
    "online_softmax",
    "one_program_a_head",
    "shared_pages",
    "wide_steps",
    "split_context",
]


ROW, SCALE = 38, 22  # of a rung; pixels for the bytes of reading everything once
LONGEST = 7  # times those bytes; a longer bar is broken off
NOTE = f"dashed: read once; red: more; a bar above {LONGEST}x is broken off"


def draw() -> dict[str, Drawing]:
    """Side by side, and one below the other."""
    return {"kernel-ladder": _ladders(2), "kernel-ladder-narrow": _ladders(1)}


def _ladders(columns: int) -> Drawing:
    title = "Bytes moved by each rung on two steps, as multiples of reading everything once"
    tall = 30 + len(RUNGS) * ROW
    picture = Drawing(columns * PHONE, tall * len(SHAPES) // columns + 20, title)
    for number, shape in enumerate(SHAPES):
        x, y = number % columns * PHONE + 2, number // columns * tall + 10
        picture.text(x, y, f"{shape.seqs} x {shape.context:,} tokens", anchor="start", size=13)
        for i, rung in enumerate(RUNGS):
            top = y + 14 + i * ROW
            picture.text(x, top + 8, f"{i + 1} {rung}", anchor="start")
            _bar(picture, x, top + 17, work(rung, shape), shape.read_once)
            # Beside the bar, not through the words above it.
            once = [(x + SCALE, top + 17), (x + SCALE, top + 36)]
            picture.line(once, "ink", width=1, dash="4 3")
    picture.text(2, picture.height - 12, NOTE, anchor="start")
    return picture


def _bar(picture: Drawing, x: float, y: float, count: Work, least: int) -> None:
    times = count.moved / least
    width = SCALE * min(times, LONGEST)
    picture.box(x, y, width, 16, "", "a" if times < 1.5 else "alarm")
    if times > LONGEST:
        for at in (width - 14, width - 10):  # a gap with slanted ends
            picture.line([(x + at, y + 18), (x + at + 5, y - 2)], "paper", width=3)
    programs = f", {count.programs:,} programs" if count.programs else ""
    label = f"{times:.3g}x: {count.moved / 1e9:.2f} GB{programs}"
    picture.text(x + width + 6, y + 8, label, anchor="start")
