"""One sum in three orders: the trees of additions, and what each comes to in float32."""

import numpy as np

from scripts.figures.svg import Drawing

NUMBERS = np.array([2.0**24, 1, 1, 1, 1, 1, -(2.0**24), 1], np.float32)
LABELS = ("2²⁴", "1", "1", "1", "1", "1", "-2²⁴", "1")
SIZE, WIDE = 15, 52


def added(parts: list[np.float32]) -> np.float32:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def pairs(x: np.ndarray) -> np.float32:
    while len(x) > 1:
        x = x[0::2] + x[1::2]
    return np.float32(x[0])


def draw() -> dict[str, Drawing]:
    picture = Drawing(450, 364, "Eight numbers, added in three orders, come to three sums")
    _order(picture, 20, "in order, one worker", 1, added(list(NUMBERS)))
    halves = [added(list(half)) for half in np.split(NUMBERS, 2)]
    _order(picture, 126, "split in two, then added", 2, added(halves))
    _order(picture, 232, "in pairs, as a tree", 4, pairs(NUMBERS))
    exact = int(NUMBERS.astype(np.float64).sum())
    picture.text(20, 352, f"the exact sum is {exact}", anchor="start", size=SIZE)
    return {"sum-orders": picture}


def _order(picture: Drawing, y: float, name: str, parts: int, total: np.float32) -> None:
    """A row of numbers; those that are added first have one colour."""
    picture.text(20, y, f"{name}: {total:g}", anchor="start", size=SIZE)
    for i, label in enumerate(LABELS):
        picture.box(20 + i * WIDE, y + 16, WIDE, 28, label, "abcd"[i * parts // 8], SIZE)
    _join(picture, y + 52, [20 + (i + 0.5) * 8 * WIDE / parts for i in range(parts)])
    for part in range(parts):
        x, width = 20 + part * 8 * WIDE / parts, 8 * WIDE / parts
        picture.line([(x + 4, y + 52), (x + width - 4, y + 52)])


def _join(picture: Drawing, y: float, places: list[float]) -> None:
    """Lines that join sums two by two, down to one."""
    while len(places) > 1:
        for left, right in zip(places[::2], places[1::2], strict=True):
            picture.line([(left, y), (left, y + 12), (right, y + 12), (right, y)])
        places = [(a + b) / 2 for a, b in zip(places[::2], places[1::2], strict=True)]
        y += 12
