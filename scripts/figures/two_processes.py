"""The server's two processes: what each does, and the messages between them.

Requests go down on the left, outputs come up on the right.
"""

from scripts.figures.svg import PHONE, Drawing


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 452, "The API process and the engine process, and what passes between")
    _clients(picture)
    _api(picture, 82)
    picture.arrow(76, 202, 76, 254)
    picture.text(86, 228, "Add, Abort", anchor="start")
    picture.arrow(206, 254, 206, 202)
    picture.text(216, 219, "Outputs,", anchor="start")
    picture.text(216, 236, "once a step", anchor="start")
    picture.arrow(309, 290, 309, 202)
    picture.text(318, 219, "Heart-", anchor="start")
    picture.text(318, 236, "beat", anchor="start")
    _engine(picture, 256)
    picture.text(PHONE / 2, 442, "two interpreters, two locks, no shared memory")
    return {"two-processes": picture}


def _clients(picture: Drawing) -> None:
    for x in (64, 150, 236):
        picture.box(x, 4, 60, 28, "client")
    picture.arrow(94, 34, 94, 80)
    picture.text(86, 57, "HTTP, JSON", anchor="end")
    picture.arrow(266, 80, 266, 34)
    picture.text(274, 57, "events", anchor="start")


def _api(picture: Drawing, y: float) -> None:
    picture.box(4, y, 350, 118, fill="a")
    picture.text(14, y + 15, "the API process", anchor="start")
    for x, upper, lower in (
        (14, "fields, templates", "text to tokens"),
        (186, "one stream a client", "tokens to text"),
    ):
        picture.box(x, y + 30, 158, 30, upper, "paper")
        picture.box(x, y + 78, 158, 30, lower, "paper")
    picture.arrow(94, y + 62, 94, y + 76)
    picture.arrow(266, y + 76, 266, y + 62)


def _engine(picture: Drawing, y: float) -> None:
    """Three threads: only the loop touches the engine."""
    picture.box(4, y, 350, 174, fill="b")
    picture.text(14, y + 15, "the engine process", anchor="start")
    picture.box(14, y + 36, 124, 30, "receives, checks", "paper")
    picture.line([(76, y + 68), (76, y + 149)], width=1)
    picture.arrow(76, y + 149, 149, y + 149)
    for row, part in enumerate(("stop strings", "model, sampler", "scheduler")):
        picture.box(152, y + 36 + 49 * row, 108, 30, part, "paper")
        if row:
            picture.arrow(206, y + 34 + 49 * row, 206, y + 68 + 49 * (row - 1))
    picture.box(270, y + 36, 78, 30, "heartbeat", "paper")
