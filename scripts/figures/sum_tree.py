"""Eight parts of a row, added up as a tree: which branch is whose on 1, 2 and 4 devices."""

from scripts.figures.svg import PHONE, Drawing

LEAVES, LEFT, WIDE, TOP = 8, 11, 42, 30


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 268, "Eight parts of a row, added as a tree")
    picture.text(LEFT, 14, "parts of a row", anchor="start")
    fills = ("a", "b", "c", "d")
    for part in range(LEAVES):
        picture.box(_x(part, 1) - 15, TOP, 30, 26, f"{part}", fills[part // 2])
    _level(picture, 2, TOP + 26, TOP + 66)
    _level(picture, 4, TOP + 90, TOP + 130)
    _level(picture, 8, TOP + 154, TOP + 194)
    for each, y in ((2, TOP + 78), (4, TOP + 142)):
        for first in range(0, LEAVES, each):
            picture.text(_x(first, each), y, "+")
    picture.text(_x(0, 8), TOP + 206, "+")
    picture.text(PHONE / 2, TOP + 228, "2 devices: a half of the tree each; 4: a quarter")
    return {"sum-tree": picture}


def _x(first: int, each: int) -> float:
    """The middle of `each` parts from `first` on."""
    return LEFT + (first + each / 2) * WIDE


def _level(picture: Drawing, each: int, top: float, bottom: float) -> None:
    half = each // 2
    for first in range(0, LEAVES, each):
        for part in (first, first + half):
            picture.line([(_x(part, half), top), (_x(first, each), bottom)], width=1)
