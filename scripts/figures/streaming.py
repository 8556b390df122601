"""Streamed text: tokens, what they decode to, what is held back and what is shown."""

from jax_engine.tokenization.detokenizer import StopChecker
from scripts.figures.svg import PHONE, Drawing

TOKENS = ["5", "␣", "E2 82", "AC", "␣S", "TO", "UR", "␣ST", "OP"]
TEXTS = ["5", " ", "", "€", " S", "TO", "UR", " ST", "OP"]
LETTER, LEAST = 10.3, 3.4  # pixels of a letter, and the letters that a column is wide at least


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 232, "A character appears when it is whole, a stop string never")
    stop = StopChecker(["STOP"])
    for row, title in enumerate(("token", "decoded", "held back", "shown")):
        picture.text(1, 10 + 58 * row, title, anchor="start")
    given = shown_so_far = ""
    x = 1.0
    for token, text in zip(TOKENS, TEXTS, strict=True):
        shown, found = stop.add(text)
        given, shown_so_far = given + text, shown_so_far + shown
        held = given[len(shown_so_far) :]
        cells = (
            (token, "a"),
            (visible(text), "free"),
            (visible(held), "alarm" if held else "free"),
            ("end" if found else visible(shown), "c"),
        )
        width = LETTER * max(LEAST, *(len(says) for says, _ in cells))
        for row, (says, fill) in enumerate(cells):
            picture.box(x, 21 + 58 * row, width - 2, 28, says, fill)
        x += width
    return {"streaming": picture}


def visible(text: str) -> str:
    return text.replace(" ", "␣")
