"""Who waits for whom: a call of LLM, streams of AsyncLLM, and vLLM 0.2.0's loop; not to scale."""

from scripts.figures.svg import FAINT, PHONE, Drawing

LEFT = 54
PARTS = {"S": 15, "E": 38, "O": 15}
STEP = sum(PARTS.values())
BOX = 26
IDS = 30  # text to tokens


def draw() -> dict[str, Drawing]:
    title = "Who waits for whom: a call, streams over two processes, and one event loop"
    picture = Drawing(PHONE, 468, title)
    _call(picture, 0)
    _streams(picture, 138)
    _one_loop(picture, 330)
    picture.text(4, 441, "S schedule; A, B: execute for them; O output;", anchor="start")
    picture.text(4, 457, "short dashes: waits; ids: text to tokens; t: text out", anchor="start")
    return {"waiting": picture}


def _steps(picture: Drawing, y: float, starts: list[float], who: list[str]) -> None:
    """Each step's three parts, E with the requests that it computes."""
    for start, names in zip(starts, who, strict=True):
        x = start
        for part, width in PARTS.items():
            fill = "b" if part == "E" else "paper"
            picture.box(x, y, width, BOX, names if part == "E" else part, fill)
            x += width


def _waits(picture: Drawing, x1: float, x2: float, y: float) -> None:
    picture.line([(x1, y), (x2, y)], FAINT, width=2, dash="4 4")


def _call(picture: Drawing, y: float) -> None:
    """A and B in one call. B ends in the second step; the caller gets both after the third."""
    picture.text(4, y + 12, "LLM.generate([A, B]): one process", anchor="start")
    caller, loop, begin = y + 28, y + 86, LEFT + IDS + 8
    picture.text(4, caller + 13, "caller", anchor="start")
    picture.text(4, loop + 13, "engine", anchor="start")
    end = begin + 3 * STEP
    picture.box(LEFT, caller, IDS, BOX, "ids", "a")
    _waits(picture, LEFT + IDS, end + 8, caller + 13)
    picture.box(end + 10, caller, 32, BOX, "t", "a")
    _steps(picture, loop, [begin + i * STEP for i in range(3)], ["A B", "A B", "A"])
    picture.arrow(LEFT + IDS - 4, caller + BOX, begin, loop - 2)
    picture.arrow(end, loop, end + 14, caller + BOX + 2)


def _streams(picture: Drawing, y: float) -> None:
    """A streams; B comes during the first step and joins the second."""
    picture.text(4, y + 12, "AsyncLLM: two processes; long dashes between", anchor="start")
    a, b, loop = y + 28, y + 62, y + 134
    begin = LEFT + IDS + 8
    ends = [begin + (i + 1) * STEP for i in range(3)]
    for name, row in (("task A", a), ("task B", b)):
        picture.text(4, row + 13, name, anchor="start")
    picture.text(4, loop + 13, "engine", anchor="start")
    came = begin + 22
    picture.box(LEFT, a, IDS, BOX, "ids", "a")
    picture.box(came, b, IDS, BOX, "ids", "a")
    _waits(picture, LEFT + IDS, ends[-1] + 6, a + 13)
    _waits(picture, came + IDS, ends[-1] + 6, b + 13)
    for i, end in enumerate(ends):
        picture.box(end + 6, a, 16, BOX, "t", "a")
        if i:
            picture.box(end + 6, b, 16, BOX, "t", "a")
    picture.line([(4, y + 112), (PHONE - 4, y + 112)], width=1, dash="8 4")
    _steps(picture, loop, [end - STEP for end in ends], ["A", "A B", "A B"])
    picture.arrow(LEFT + IDS - 4, a + BOX, begin, loop - 2)
    picture.arrow(came + IDS - 8, b + BOX, ends[0], loop - 2)
    for i, end in enumerate(ends):
        picture.arrow(end - 4, loop, end + 10, (b if i else a) + BOX + 2)


def _one_loop(picture: Drawing, y: float) -> None:
    """The step runs within the event loop, so no coroutine runs meanwhile."""
    picture.text(4, y + 12, "AsyncLLMEngine of vLLM 0.2.0, one GPU", anchor="start")
    loop, b, begin = y + 24, y + 62, LEFT + IDS + 2
    picture.text(4, loop + 13, "loop", anchor="start")
    picture.text(4, b + 13, "B comes", anchor="start")
    first = begin + STEP
    picture.box(LEFT, loop, IDS, BOX, "ids", "a")
    _steps(picture, loop, [begin, first + 52], ["A", "A B"])
    picture.box(first + 2, loop, 16, BOX, "t", "a")
    picture.box(first + 20, loop, IDS, BOX, "ids", "a")
    picture.box(first + 54 + STEP, loop, 16, BOX, "t", "a")
    picture.box(first + 72 + STEP, loop, 16, BOX, "t", "a")
    _waits(picture, begin + 22, first + 28, b + 13)
    picture.arrow(first + 28, b + 13, first + 34, loop + BOX + 2)
