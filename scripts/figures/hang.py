"""The swapped group that can never come back: 8 blocks and 2 of head-room, in a pool of 8."""

from scripts.figures.svg import PHONE, Drawing

SIZE = 35
HELD = [("both", "a")] * 2 + [("1st", "b")] * 3 + [("2nd", "c")] * 3


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 236, "A group that needs more than the pool to return")
    free = [("free", "alarm")] * 2
    for row, (title, blocks) in enumerate(
        (
            ("on the GPU, in the last step that did anything", HELD),
            ("on the CPU, ever since", HELD),
            ("what it needs to come back: two free blocks more", [*HELD, *free]),
            ("the pool: all free, for ever", [(str(i), "free") for i in range(len(HELD))]),
        )
    ):
        y = 10 + 59 * row
        picture.text(4, y, title, anchor="start")
        for i, (label, fill) in enumerate(blocks):
            picture.box(4 + i * SIZE, y + 12, SIZE - 3, 28, label, fill)
    return {"hang": picture}
