"""Online softmax as a chain, and one query over blocks that lie anywhere (Figure 5)."""

from scripts.figures.svg import PHONE, Drawing

# After each key: what is carried. The weights exp(score) are 1, 3, 4; the values 4, 8, 2.
CHAIN = [
    ("weight 1, value 4", "", "largest log 1", "total 1", "weighted 4"),
    ("weight 3, value 8", "x 1/3", "largest log 3", "total 4/3", "weighted 28/3"),
    ("weight 4, value 2", "x 3/4", "largest log 4", "total 2", "weighted 9"),
]
LOGICAL = [
    ["Four", "score", "and", "seven"],
    ["years", "ago", "our", "fathers"],
    ["brought", "forth", "", ""],
]
TABLE = [5, 1, 3]
POOL = 6


def online_softmax() -> Drawing:
    picture = Drawing(PHONE, 316, "Three keys, one after another; what is carried is rescaled")
    for i, (key, shrink, *carried) in enumerate(CHAIN):
        y = 12 + 88 * i
        picture.box(10, y + 8, 130, 28, key, "b")
        picture.arrow(142, y + 22, 170, y + 22)
        for row, text in enumerate(carried):
            picture.box(174, y + 22 * row, 130, 22, text, "a")
        if shrink:
            picture.arrow(239, y - 22, 239, y - 2)
            picture.text(247, y - 12, f"both sums {shrink}", anchor="start")
    picture.text(239, 282, "result = weighted / total")
    picture.text(239, 300, "= 9 / 2 = 4.5")
    return picture


def attention_blocks() -> Drawing:
    picture = Drawing(PHONE, 250, "The query of 'forth' visits blocks 5, 1 and 3, in this order")
    picture.box(3, 106, 84, 28, "query: forth", "b")
    picture.text(236, 10, "keys and values, in physical blocks")
    for block in range(POOL):
        y = 24 + 38 * block
        words = LOGICAL[TABLE.index(block)] if block in TABLE else [""] * 4
        fill = "a" if block in TABLE else "free"
        for i, word in enumerate(words):
            picture.box(132 + 52 * i, y, 52, 26, word, fill if word else "free")
        picture.text(349, y + 13, str(block))
        if block in TABLE:
            picture.arrow(89, 120, 101, y + 13)
            order = ["1st", "2nd", "3rd"][TABLE.index(block)]
            picture.text(118, y + 13, order)
    return picture


def draw() -> dict[str, Drawing]:
    return {"online-softmax": online_softmax(), "attention-blocks": attention_blocks()}
