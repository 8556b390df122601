"""The swapped group that can never come back: 8 blocks and 2 of head-room, in a pool of 8."""

from scripts.figures.svg import Drawing

SIZE, LEFT = 46, 150
HELD = [("both", "a")] * 2 + [("1st", "b")] * 3 + [("2nd", "c")] * 3


def draw() -> dict[str, Drawing]:
    picture = Drawing(640, 220, "A group that needs more than the pool to return")
    rows = [
        ("GPU, last step", HELD, 20),
        ("CPU, ever since", HELD, 74),
        ("to come back", [*HELD, ("free", "alarm"), ("free", "alarm")], 128),
    ]
    for title, blocks, y in rows:
        picture.text(LEFT - 12, y + 15, title, anchor="end")
        for i, (label, fill) in enumerate(blocks):
            picture.box(LEFT + i * SIZE, y, SIZE - 4, 30, label, fill)
    picture.text(LEFT - 12, 197, "the pool", anchor="end")
    for i in range(len(HELD)):
        picture.box(LEFT + i * SIZE, 182, SIZE - 4, 30, str(i))
    picture.text(LEFT + 8 * SIZE + 4, 197, "all free, for ever", anchor="start", size=10)
    return {"hang": picture}
