"""Three buffers that are filled and read in turn: the ring at one moment, and its barriers in time.

Copies of different buffers overlap; the reader takes blocks in order. A buffer is filled again when
it was read, which `empty` says, and read when it was filled, which `full` says.
"""

from itertools import pairwise
from math import cos, radians, sin
from typing import NamedTuple

from scripts.figures.svg import FAINT, PHONE, Drawing

SLOTS, COPY, READ, END = 3, 4, 3, 19  # a copy takes 4 units of time, reading a block 3
MOMENT = 12  # of the picture above
LEFT = 58.0
UNIT = (PHONE - LEFT - 2) / END
FILLS = {"copy": "a", "full": "c", "read": "b"}


class Visit(NamedTuple):
    """A block's time in its buffer: being copied from `begin`, there from `full`, read from .."""

    block: int
    begin: int
    full: int
    read: int
    end: int

    def parts(self) -> list[tuple[str, int, int]]:
        """What happens to it, from when to when."""
        return [
            ("copy", self.begin, self.full),
            ("full", self.full, self.read),
            ("read", self.read, self.end),
        ]


def visits(slots: int = SLOTS) -> list[list[Visit]]:
    """By buffer, as long as any begins before END."""
    found: list[list[Visit]] = [[] for _ in range(slots)]
    free, idle, block = [0] * slots, 0, 0
    while min(free) < END:
        slot = block % slots
        begin = free[slot]
        full = begin + COPY
        read = max(full, idle)
        free[slot] = idle = read + READ
        found[slot].append(Visit(block, begin, full, read, idle))
        block += 1
    return found


def state(lane: list[Visit], time: int) -> tuple[int, str]:
    """The block in a buffer at a time, and what happens to it."""
    return next(
        (one.block, what) for one in lane for what, begin, end in one.parts() if begin <= time < end
    )


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 474, "A ring of three buffers, and the phases of its barriers")
    lanes = visits()
    _ring(picture, lanes)
    y = 232.0
    picture.text(LEFT, y, "time", anchor="start")
    picture.arrow(LEFT + 32, y, PHONE - 4, y, FAINT)
    x = LEFT + (MOMENT + 0.5) * UNIT
    picture.line([(x, y + 4), (x, 456)], dash="4 3", width=1.5)
    picture.text(x, 465, "the moment above")
    for slot, lane in enumerate(lanes):
        _lane(picture, slot, lane, y + 12 + slot * 74)
    return {"tma-ring": picture}


def _ring(picture: Drawing, lanes: list[list[Visit]]) -> None:
    """The buffers in a circle, in the order of their numbers, with what is in each."""
    middle, radius, w, h = (PHONE / 2, 112.0), 80.0, 112.0, 52.0
    words = {"copy": "is being filled", "full": "waits: full", "read": "is being read"}
    for begin, end in ((-50, 2), (56, 108), (184, 222)):
        along = [radians(begin + (end - begin) * i / 13) for i in range(14)]
        points = [(middle[0] + 88 * cos(a), middle[1] + radius * sin(a)) for a in along]
        picture.line(points[:-1], FAINT)
        picture.arrow(*points[-2], *points[-1], FAINT)
    picture.text(middle[0], middle[1] - 16, "block j is in")
    picture.text(middle[0], middle[1], "buffer j mod 3")
    for slot, lane in enumerate(lanes):
        angle = radians(-90 + 120 * slot)
        x, y = middle[0] + 112 * cos(angle) - w / 2, middle[1] + radius * sin(angle) - h / 2
        block, what = state(lane, MOMENT)
        picture.box(x, y, w, h, fill=FILLS[what])
        picture.text(x + w / 2, y + 16, f"buffer {slot}: block {block}")
        picture.text(x + w / 2, y + 35, words[what])
        if what == "copy":
            picture.arrow(x + w / 2, y + h + 26, x + w / 2, y + h + 3)
            picture.text(x + w / 2, y + h + 35, "TMA, from GMEM")
        elif what == "read":
            picture.arrow(x + w / 2, y + h + 3, x + w / 2, y + h + 26)
            picture.text(x + w / 2, y + h + 35, "wgmma")


def _lane(picture: Drawing, slot: int, lane: list[Visit], y: float) -> None:
    """A buffer in time, and below it the phases of its two barriers."""
    picture.text(2, y + 12, f"buffer {slot}", anchor="start", size=12)
    for one in lane:
        for what, begin, end in one.parts():
            _span(picture, begin, end, y, 24, what, one.block)
    for row, name in enumerate(("full", "empty")):
        top = y + 28 + row * 19
        picture.text(2, top + 8, name, anchor="start")
        turns = [one.full if name == "full" else one.end for one in lane]
        for phase, (begin, end) in enumerate(pairwise([0, *turns, END])):
            if begin < end:
                x, width = LEFT + begin * UNIT, (min(end, END) - begin) * UNIT
                picture.box(x, top, width, 16, str(phase % 2) if width > 10 else "", "free")


def _span(
    picture: Drawing, begin: int, end: int, y: float, h: float, what: str, block: int
) -> None:
    if begin < min(end, END):
        width = (min(end, END) - begin) * UNIT
        words = what if what == "full" else f"{what} {block}"
        text = words if width >= 7 * len(words) else ""
        picture.box(LEFT + begin * UNIT, y, width, h, text, FILLS[what])
