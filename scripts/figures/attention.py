"""Online softmax as a chain, and one query over blocks that lie anywhere (Figure 5)."""

from scripts.figures.svg import Drawing

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
    picture = Drawing(380, 316, "Three keys, one after another; what is carried is rescaled")
    for i, (key, shrink, *carried) in enumerate(CHAIN):
        y = 12 + 88 * i
        picture.box(10, y + 8, 130, 28, key, "b")
        picture.arrow(142, y + 22, 186, y + 22)
        for row, text in enumerate(carried):
            picture.box(190, y + 22 * row, 130, 22, text, "a")
        if shrink:
            picture.arrow(255, y - 22, 255, y - 2)
            picture.text(264, y - 12, f"both sums {shrink}", anchor="start", size=10)
    picture.text(255, 282, "result = weighted / total", size=12)
    picture.text(255, 300, "= 9 / 2 = 4.5", size=12)
    return picture


def attention_blocks() -> Drawing:
    picture = Drawing(380, 250, "The query of 'forth' visits blocks 5, 1 and 3, in this order")
    picture.box(10, 106, 86, 28, "query: forth", "b")
    picture.text(252, 10, "keys and values, in physical blocks", size=11)
    for block in range(POOL):
        y = 24 + 38 * block
        words = LOGICAL[TABLE.index(block)] if block in TABLE else [""] * 4
        fill = "a" if block in TABLE else "free"
        for i, word in enumerate(words):
            picture.box(146 + 54 * i, y, 54, 26, word, fill if word else "free", size=11)
        picture.text(371, y + 13, str(block))
        if block in TABLE:
            picture.arrow(98, 120, 118, y + 13)
            order = ["1st", "2nd", "3rd"][TABLE.index(block)]
            picture.text(132, y + 13, order, size=11)
    return picture


def draw() -> dict[str, Drawing]:
    return {"online-softmax": online_softmax(), "attention-blocks": attention_blocks()}
