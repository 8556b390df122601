"""A layer on two devices: which rows and columns each holds, and when they talk.

Weights are drawn as [out, in]: rows make outputs, columns read inputs.
"""

from scripts.figures.svg import PHONE, Drawing

LEFT, RIGHT = 16, 196
WIDTH = 146


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 528, "A layer on two devices, which talk twice")
    for x, name, fill in ((LEFT, "device 0", "a"), (RIGHT, "device 1", "b")):
        picture.text(x + WIDTH / 2, 12, name)
        _half(picture, x, fill)
    _sum(picture, 246)
    _sum(picture, 468)
    picture.text(PHONE / 2, 520, "the next layer, the same on both")
    return {"two-devices": picture}


def _half(picture: Drawing, x: float, fill: str) -> None:
    """What one device does of a layer, from top to bottom."""
    first = fill == "a"
    heads = "0, 1" if first else "2, 3"
    _step(picture, x, 26, "x: each token's vector", "free")
    _step(picture, x, 80, f"rows of heads {heads}", fill)
    _step(picture, x, 134, f"cache of heads {heads}", fill)
    _step(picture, x, 188, f"columns of heads {heads}", fill)
    half = "first half" if first else "second half"
    _step(picture, x, 302, "x + the sum", "free")
    _step(picture, x, 356, f"rows: {half}", fill)
    _step(picture, x, 410, f"columns: {half}", fill)
    for y in (56, 110, 164, 332, 386):
        picture.arrow(x + WIDTH / 2, y, x + WIDTH / 2, y + 22)


def _step(picture: Drawing, x: float, y: float, text: str, fill: str) -> None:
    picture.box(x, y, WIDTH, 30, text, fill)


def _sum(picture: Drawing, y: float) -> None:
    """Both parts go into one sum, which both get."""
    for x in (LEFT, RIGHT):
        picture.arrow(x + WIDTH / 2, y - 27, x + WIDTH / 2, y - 3)
        if y < 400:
            picture.arrow(x + WIDTH / 2, y + 32, x + WIDTH / 2, y + 54)
    picture.box(LEFT, y, RIGHT + WIDTH - LEFT, 30, "sum over the devices", "paper")
