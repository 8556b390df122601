"""The server's two processes and the messages between them."""

from scripts.figures.svg import Drawing

SIZE = 15


def draw() -> dict[str, Drawing]:
    picture = Drawing(450, 268, "The API's process and the engine's, and what passes between")
    for x, name, fill, parts in (
        (78, "API's process", "a", ("HTTP, JSON", "text to tokens", "tokens to text")),
        (318, "engine's process", "b", ("scheduler", "model, cache", "sampler")),
    ):
        picture.box(x, 34, 124, 204, fill=fill)
        picture.text(x + 62, 16, name, size=SIZE)
        for i, part in enumerate(parts):
            picture.box(x + 7, 52 + i * 60, 110, 44, part, "paper", SIZE)
    for y in (62, 122, 182):
        picture.box(4, y, 46, 30, "client", "free", SIZE)
        picture.arrow(52, y + 10, 76, y + 10)
        picture.arrow(76, y + 22, 52, y + 22)
    picture.text(260, 76, "Add, Abort", size=SIZE)
    picture.arrow(208, 92, 312, 92)
    picture.text(260, 132, "Outputs", size=SIZE)
    picture.text(260, 152, "once a step", size=SIZE)
    picture.arrow(312, 170, 208, 170)
    picture.text(260, 206, "Beat", size=SIZE)
    picture.arrow(312, 222, 208, 222)
    picture.text(225, 256, "two interpreters, two locks, no shared memory", size=SIZE)
    return {"two-processes": picture}
