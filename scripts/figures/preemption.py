"""What swapping and recomputing cost (after Figure 19), and the order of moves inside a step."""

from math import log10

from reference.cost_model import TABLE_1
from scripts.figures.svg import PHONE, Drawing

BLOCK_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
TOKENS, OPT_13B = 256, TABLE_1["OPT-13B"]


def swap_cost() -> Drawing:
    picture = Drawing(PHONE, 240, "Swapping is dear for small blocks; recomputing costs the same")

    def y(milliseconds: float) -> float:  # 10 ms at 200, 1 s at 20
        return 200 - 90 * (log10(milliseconds) - 1)

    for milliseconds in (10, 30, 100, 300, 1000):
        picture.line([(46, y(milliseconds)), (350, y(milliseconds))], "free")
        picture.text(40, y(milliseconds), f"{milliseconds:,}", anchor="end")
    for i, size in enumerate(BLOCK_SIZES):
        picture.text(58 + 36 * i, 214, str(size))
    moves = [2 * OPT_13B.seconds_to_move(TOKENS, size) for size in BLOCK_SIZES]
    swap = [(58 + 36 * i, y(1e3 * seconds)) for i, seconds in enumerate(moves)]
    recompute = y(1e3 * OPT_13B.seconds_to_recompute(TOKENS))
    picture.line(swap, "line-2")
    picture.line([(58, recompute), (346, recompute)], "line-1")
    picture.text(80, 50, "swap out and in", anchor="start")
    picture.text(350, recompute - 12, "recompute", anchor="end")
    picture.text(46, 8, "milliseconds for 256 tokens", anchor="start")
    picture.text(350, 232, "block size", anchor="end")
    return picture


ORDERS = {
    "right": [("before", "AB."), ("swap out", "ABB"), ("copy", "AAB")],
    "wrong": [("before", "AB."), ("copy", "AA."), ("swap out", "AAA")],
}
FILLS = {"A": "a", "B": "b", ".": "free"}


def step_order() -> Drawing:
    picture = Drawing(PHONE, 176, "Swapping out before copying saves block 2 of B")
    for column, (name, states) in enumerate(ORDERS.items()):
        x = 2 + 180 * column
        picture.text(x, 8, name, anchor="start")
        for i, place in enumerate(("gpu 3", "gpu 2", "cpu 2")):
            picture.text(x + 79 + 38 * i, 28, place)
        for row, (operation, contents) in enumerate(states):
            y = 42 + 44 * row
            picture.text(x, y + 14, operation, anchor="start")
            for i, content in enumerate(contents):
                lost = name == "wrong" and content == "A" and i == 2
                fill = "alarm" if lost else FILLS[content]
                picture.box(x + 62 + 38 * i, y, 34, 28, content.strip("."), fill)
    return picture


def draw() -> dict[str, Drawing]:
    return {"swap-cost": swap_cost(), "step-order": step_order()}
