"""What swapping and recomputing cost (after Figure 19), and the order of moves inside a step."""

from math import log10

from reference.cost_model import TABLE_1
from scripts.figures.svg import Drawing

BLOCK_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
TOKENS, OPT_13B = 256, TABLE_1["OPT-13B"]


def swap_cost() -> Drawing:
    picture = Drawing(380, 240, "Swapping is dear for small blocks; recomputing costs the same")

    def y(milliseconds: float) -> float:  # 10 ms at 200, 1 s at 20
        return 200 - 90 * (log10(milliseconds) - 1)

    for milliseconds in (10, 30, 100, 300, 1000):
        picture.line([(50, y(milliseconds)), (366, y(milliseconds))], "free")
        picture.text(44, y(milliseconds), f"{milliseconds}", anchor="end", size=11)
    for i, size in enumerate(BLOCK_SIZES):
        picture.text(62 + 37 * i, 214, str(size), size=11)
    moves = [2 * OPT_13B.seconds_to_move(TOKENS, size) for size in BLOCK_SIZES]
    swap = [(62 + 37 * i, y(1e3 * seconds)) for i, seconds in enumerate(moves)]
    recompute = y(1e3 * OPT_13B.seconds_to_recompute(TOKENS))
    picture.line(swap, "alarm")
    picture.line([(62, recompute), (358, recompute)], "a")
    picture.text(80, 50, "swap out and in", anchor="start")
    picture.text(366, recompute - 12, "recompute", anchor="end")
    picture.text(10, 8, "milliseconds for 256 tokens", anchor="start", size=11)
    picture.text(366, 232, "block size", anchor="end", size=11)
    return picture


ORDERS = {
    "right": [("before", "AB."), ("swap out", "ABB"), ("copy", "AAB")],
    "wrong": [("before", "AB."), ("copy", "AA."), ("swap out", "AAA")],
}
FILLS = {"A": "a", "B": "b", ".": "free"}


def step_order() -> Drawing:
    picture = Drawing(380, 176, "Swapping out before copying saves block 2 of B")
    for column, (name, states) in enumerate(ORDERS.items()):
        x = 4 + 192 * column
        picture.text(x, 8, name, anchor="start")
        for i, place in enumerate(("gpu 3", "gpu 2", "cpu 2")):
            picture.text(x + 80 + 40 * i, 28, place, size=10)
        for row, (operation, contents) in enumerate(states):
            y = 42 + 44 * row
            picture.text(x, y + 14, operation, anchor="start", size=11)
            for i, content in enumerate(contents):
                lost = name == "wrong" and content == "A" and i == 2
                fill = "alarm" if lost else FILLS[content]
                picture.box(x + 62 + 40 * i, y, 36, 28, content.strip("."), fill)
    return picture


def draw() -> dict[str, Drawing]:
    return {"swap-cost": swap_cost(), "step-order": step_order()}
