"""The whole system: requests, scheduler, tables, pool, model, sampler, and what goes round."""

from scripts.figures.svg import Drawing


def draw() -> dict[str, Drawing]:
    picture = Drawing(640, 250, "What happens in a step, and to whom it goes next")
    boxes = {
        "requests": (10, 20, 90, "free"),
        "waiting": (130, 20, 90, "free"),
        "running": (250, 20, 90, "a"),
        "done": (540, 20, 90, "free"),
        "plan: chunks": (250, 90, 90, "b"),
        "tables": (130, 160, 90, "c"),
        "pool": (10, 160, 90, "c"),
        "copy, write, attend": (250, 160, 130, "d"),
        "sample": (430, 160, 80, "d"),
    }
    for label, (x, y, w, fill) in boxes.items():
        picture.box(x, y, w, 32, label, fill)
    for x1, y1, x2, y2 in [
        (100, 36, 128, 36),  # requests to waiting
        (220, 36, 248, 36),  # admitted
        (295, 52, 295, 88),  # running to plan
        (295, 122, 295, 158),  # plan to model
        (380, 176, 428, 176),  # model to sample
        (248, 176, 222, 176),  # model reads tables
        (128, 176, 102, 176),  # tables name blocks
        (340, 30, 538, 30),  # to done
        (470, 158, 342, 46),  # the token goes back
    ]:
        picture.arrow(x1, y1, x2, y2)
    picture.text(440, 18, "length or stop: blocks go back", size=11)
    picture.text(424, 96, "a token more: a gap of one", anchor="start", size=11)
    picture.line([(262, 54), (262, 72), (175, 72)], ink="alarm")
    picture.arrow(175, 72, 175, 54, ink="alarm")
    picture.text(140, 86, "preempted: blocks go back, tokens stay", size=11)
    picture.text(10, 212, "counts, queue, contents", anchor="start", size=11)
    picture.text(250, 212, "in each layer: all writes before any read", anchor="start", size=11)
    return {"one-page": picture}
