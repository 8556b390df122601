"""What each rung of the kernel ladder moves and how many programs it has, as counted in work.py."""

import math

from examples.kernel_ladder.work import SHAPES, work
from scripts.figures.svg import Drawing

RUNGS = [
    "gather_and_softmax",
    "online_softmax",
    "one_program_a_head",
    "shared_pages",
    "wide_steps",
    "split_context",
]


def draw() -> dict[str, Drawing]:
    picture = Drawing(640, 240, "Bytes moved by each rung on two steps, on a logarithmic axis")
    for column, shape in enumerate(SHAPES):
        x = 150 + column * 250
        picture.text(x, 14, f"{shape.seqs} x {shape.context:,} tokens", anchor="start")
        least = shape.read_once
        for i, rung in enumerate(RUNGS):
            y = 30 + i * 32
            if column == 0:
                picture.text(142, y + 11, f"{i + 1} {rung}", anchor="end", size=11)
            count = work(rung, shape)
            width = 12 + 28 * math.log2(count.moved / least)
            picture.box(x, y, width, 22, "", "a" if count.moved < 1.5 * least else "alarm")
            programs = f", {count.programs:,} programs" if count.programs else ""
            label = f"{count.moved / 1e9:.2f} GB{programs}"
            inside = width > 110
            picture.text(x + 6 if inside else x + width + 6, y + 11, label, anchor="start", size=11)
    picture.text(150, 230, "red: more than is needed; axis logarithmic", anchor="start", size=11)
    return {"kernel-ladder": picture}
