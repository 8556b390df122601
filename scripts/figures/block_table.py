"""Figure 6 of the paper: logical blocks, the block table, physical blocks."""

from scripts.figures.svg import PHONE, Drawing

LOGICAL = [["Four", "score", "and", "seven"], ["years", "ago", "our", ""]]
TABLE = [7, 1]
POOL = 8


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 344, "Logical blocks 0 and 1 lie in physical blocks 7 and 1")
    picture.text(114, 10, "logical blocks")
    picture.text(284, 10, "block table")
    picture.text(114, 100, "physical blocks")
    for i, words in enumerate(LOGICAL):
        y = 24 + i * 32
        picture.text(8, y + 12, str(i))
        picture.row(24, y, 45, 24, words, fill="a")
        picture.box(264, y, 40, 24, str(TABLE[i]))
        picture.arrow(206, y + 12, 262, y + 12)
        right, end = 344 - 16 * i, 114 + TABLE[i] * 29 + 12
        picture.line([(304, y + 12), (right, y + 12), (right, end)], width=1)
        picture.arrow(right, end, 207, end)
    for block in range(POOL):
        y = 114 + block * 29
        picture.text(8, y + 12, str(block))
        words = LOGICAL[TABLE.index(block)] if block in TABLE else [""] * 4
        picture.row(24, y, 45, 24, words, fill="a" if block in TABLE else "free")
    return {"block-table": picture}
