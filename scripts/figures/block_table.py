"""Figure 6 of the paper: logical blocks, the block table, physical blocks."""

from scripts.figures.svg import Drawing

LOGICAL = [["Four", "score", "and", "seven"], ["years", "ago", "our", ""]]
TABLE = [7, 1]
POOL = 8


def draw() -> dict[str, Drawing]:
    picture = Drawing(560, 300, "Logical blocks 0 and 1 lie in physical blocks 7 and 1")
    picture.text(110, 14, "logical blocks")
    picture.text(290, 14, "block table")
    picture.text(450, 14, "physical blocks")
    for i, words in enumerate(LOGICAL):
        y = 60 + i * 50
        picture.text(12, y + 12, str(i))
        picture.row(24, y, 45, 24, words, fill="a")
        picture.box(270, y, 40, 24, str(TABLE[i]))
        picture.arrow(206, y + 12, 268, y + 12)
        picture.arrow(312, y + 12, 348, 30 + TABLE[i] * 32 + 12)
    for block in range(POOL):
        y = 30 + block * 32
        picture.text(546, y + 12, str(block))
        words = LOGICAL[TABLE.index(block)] if block in TABLE else [""] * 4
        picture.row(350, y, 45, 24, words, fill="a" if block in TABLE else "free")
    return {"block-table": picture}
