"""The whole system: requests, scheduler, tables, pool, model, sampler, and what goes round."""

from scripts.figures.svg import PHONE, Drawing

BOXES = {
    "requests": (2, 28, 70, "free"),
    "waiting": (92, 28, 70, "free"),
    "running": (182, 28, 70, "a"),
    "done": (296, 28, 60, "free"),
    "plan: chunks": (172, 132, 96, "b"),
    "tables": (82, 204, 64, "c"),
    "pool": (2, 204, 60, "c"),
    "copy, write, attend": (166, 204, 136, "d"),
    "sample": (172, 282, 96, "d"),
}
ARROWS = [
    (73, 44, 90, 44),  # requests to waiting
    (163, 44, 180, 44),  # admitted
    (254, 44, 294, 44),  # to done
    (220, 62, 220, 130),  # running to plan
    (220, 166, 220, 202),  # plan to model
    (220, 238, 220, 280),  # model to sample
    (164, 220, 148, 220),  # model reads tables
    (80, 220, 64, 220),  # tables name blocks
]
LABELS = [
    (356, 12, "length or stop: blocks go back", "end"),
    (2, 108, "preempted: blocks go back,", "start"),
    (2, 125, "tokens stay", "start"),
    (2, 250, "counts, queue, contents", "start"),
    (2, 282, "in each layer:", "start"),
    (2, 299, "all writes before", "start"),
    (2, 316, "any read", "start"),
    (338, 330, "a token more: a gap of one", "end"),
]


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 342, "What happens in a step, and to whom it goes next")
    for label, (x, y, w, fill) in BOXES.items():
        picture.box(x, y, w, 32, label, fill)
    for ends in ARROWS:
        picture.arrow(*ends)
    for x, y, text, anchor in LABELS:
        picture.text(x, y, text, anchor=anchor)
    picture.line([(196, 62), (196, 84), (127, 84)], ink="line-2")
    picture.arrow(127, 84, 127, 62, ink="line-2")
    picture.line([(270, 298), (344, 298), (344, 92), (242, 92)], width=1)  # the token goes back
    picture.arrow(242, 92, 242, 62)
    return {"one-page": picture}
