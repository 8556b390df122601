"""Four weights on the sixteen steps of their group."""

from scripts.figures.svg import FAINT, Drawing

SIZE = 15
WEIGHTS = (-0.70, 0.13, 0.80, -0.26)
LEFT, STEP = 40, 25


def draw() -> dict[str, Drawing]:
    picture = Drawing(450, 168, "Four weights and the sixteen steps from their smallest to largest")
    low, scale = min(WEIGHTS), (max(WEIGHTS) - min(WEIGHTS)) / 15
    picture.line([(LEFT, 84), (LEFT + 15 * STEP, 84)], FAINT, width=1)
    for code in range(16):
        x = LEFT + code * STEP
        picture.line([(x, 78), (x, 90)], FAINT, width=1)
        picture.text(x, 108, str(code), size=SIZE)
    for weight, fill in zip(WEIGHTS, "abcd", strict=True):
        at = (weight - low) / scale
        exact, rounded = LEFT + at * STEP, LEFT + round(at) * STEP
        picture.box(exact - 23, 22, 46, 26, f"{weight:g}", fill, SIZE)
        picture.arrow(exact, 50, rounded, 76)
    picture.text(LEFT, 142, "minimum", size=SIZE)
    picture.line([(LEFT, 118), (LEFT, 130)])
    picture.text(LEFT + 8.5 * STEP, 142, "codes; a step is the scale, 0.1", size=SIZE)
    return {"quantised-group": picture}
