"""The server's two processes and the messages between them."""

from scripts.figures.svg import Drawing

SIZE = 15


def draw() -> dict[str, Drawing]:
    picture = Drawing(560, 268, "The API's process and the engine's, and what passes between")
    for x, name, fill, parts in (
        (130, "API's process", "a", ("HTTP, JSON", "text to tokens", "tokens to text")),
        (400, "engine's process", "b", ("scheduler", "model, cache", "sampler")),
    ):
        picture.box(x, 34, 150, 204, fill=fill)
        picture.text(x + 75, 16, name, size=SIZE)
        for i, part in enumerate(parts):
            picture.box(x + 10, 52 + i * 60, 130, 44, part, "paper", SIZE)
    for y, client in ((62, "client"), (122, "client"), (182, "client")):
        picture.box(10, y, 72, 30, client, "free", SIZE)
        picture.arrow(84, y + 10, 126, y + 10)
        picture.arrow(126, y + 22, 84, y + 22)
    picture.text(340, 76, "Add, Abort", size=SIZE)
    picture.arrow(286, 92, 394, 92)
    picture.text(340, 136, "Outputs", size=SIZE)
    picture.text(340, 154, "once a step", size=SIZE)
    picture.arrow(394, 172, 286, 172)
    picture.text(340, 206, "Beat", size=SIZE)
    picture.arrow(394, 222, 286, 222)
    picture.text(280, 256, "two interpreters, two locks, no shared memory", size=SIZE)
    return {"two-processes": picture}
