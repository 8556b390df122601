"""The rows of a step, brought together by the slot of their adapter."""

import numpy as np

from scripts.figures.svg import Drawing

SLOTS = np.array([2, 0, 1, 2, 0, 1, 2])
"""The slots of the rows in docs/tutorial/adapters.md."""
SIZE, WIDE, LEFT = 15, 58, 22
FILLS = ("free", "a", "b")


def draw() -> dict[str, Drawing]:
    picture = Drawing(450, 246, "Rows are sorted by slot, so each adapter is read once")
    order = np.argsort(SLOTS, kind="stable")
    picture.text(LEFT, 14, "the rows of a step, and the slot of each", anchor="start", size=SIZE)
    for row, slot in enumerate(SLOTS):
        picture.box(LEFT + row * WIDE, 28, WIDE, 32, f"{row}: {slot}", FILLS[slot], SIZE)
    for place, row in enumerate(order):
        start, end = (LEFT + (at + 0.5) * WIDE for at in (row, place))
        picture.arrow(start, 62, end, 110)
    for place, row in enumerate(order):
        slot = SLOTS[row]
        picture.box(LEFT + place * WIDE, 112, WIDE, 32, f"{row}", FILLS[slot], SIZE)
    for slot in range(len(FILLS)):
        _group(picture, slot, np.flatnonzero(SLOTS[order] == slot))
    return {"sorted-rows": picture}


def _group(picture: Drawing, slot: int, places: np.ndarray) -> None:
    """What becomes of the rows of a slot."""
    left, right = LEFT + places[0] * WIDE + 4, LEFT + (places[-1] + 1) * WIDE - 4
    picture.line([(left, 152), (left, 158), (right, 158), (right, 152)])
    if slot == 0:
        picture.text((left + right) / 2, 176, "not read", size=SIZE)
        return
    picture.box(left, 168, right - left, 26, f"× A of slot {slot}", FILLS[slot], SIZE)
    picture.box(left, 204, right - left, 26, f"× B of slot {slot}", FILLS[slot], SIZE)
