"""Streamed text: tokens, what they decode to, what is held back and what is shown."""

from jax_engine.tokenization.stop import StopChecker
from scripts.figures.svg import Drawing

TOKENS = ["5", "␣", "E2 82", "AC", "␣S", "TO", "UR", "␣ST", "OP"]
TEXTS = ["5", " ", "", "€", " S", "TO", "UR", " ST", "OP"]
WIDTH = 58


def draw() -> dict[str, Drawing]:
    picture = Drawing(640, 190, "A character appears when it is whole, a stop string never")
    stop = StopChecker(["STOP"])
    for y, title in ((20, "token"), (64, "decoded"), (108, "held back"), (152, "shown")):
        picture.text(92, y + 15, title, anchor="end")
    given = shown_so_far = ""
    for i, (token, text) in enumerate(zip(TOKENS, TEXTS, strict=True)):
        x = 104 + i * WIDTH
        shown, found = stop.add(text)
        given, shown_so_far = given + text, shown_so_far + shown
        held = given[len(shown_so_far) :]
        picture.box(x, 20, WIDTH - 6, 30, token, "a")
        picture.box(x, 64, WIDTH - 6, 30, visible(text))
        picture.box(x, 108, WIDTH - 6, 30, visible(held), "alarm" if held else "free")
        picture.box(x, 152, WIDTH - 6, 30, "end" if found else visible(shown), "c")
    return {"streaming": picture}


def visible(text: str) -> str:
    return text.replace(" ", "␣")
