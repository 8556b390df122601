"""The rooms of the code and a request's way through them, in the rows of scripts/rooms.py.

The narrow one has the same rooms in a phone's width, with those beside the way below it.
"""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scripts import rooms as house
from scripts.figures.svg import PHONE, Drawing
from scripts.rooms import STEP

TITLE = "The rooms of the code, and a request's way through them"
LETTER = 0.6  # of a text's size: the width that a letter gets
NAME = 12  # size of a room's name
BETWEEN = 14  # boxes in a row
BACK, RESULT = "jax_engine/engine", "StepResult"  # who reads what a step has brought
BESIDE = "beside the way"
APART = ("shares no code:", "tests hold the", "two together")


class Box(NamedTuple):
    """A room's box: `lines` are its name and what it says."""

    room: str
    lines: list[str]
    x: float
    y: float
    w: float
    h: float

    @property
    def middle(self) -> float:
        return self.x + self.w / 2


@dataclass
class Plan:
    """Where each room is in a picture.

    Attributes:
        width: The width of all rooms but those that stand apart.
        letters: The most that a line of what a room says may have.
        size: The size of these letters.
        gap: The room between two rows.
    """

    width: float
    letters: int
    size: float
    gap: float
    left: float = 4
    boxes: dict[str, Box] = field(default_factory=dict)
    height: float = 0

    def lines(self, room: str) -> list[str]:
        own = room if room == STEP or "/" not in room else room.removeprefix("jax_engine/")
        if room == STEP:
            return [own, house.says(room)]
        return [own, *textwrap.wrap(house.says(room), self.letters, break_long_words=False)]

    def wide(self, room: str) -> float:
        """The width of a room's box."""
        if room == STEP:
            return self.width - self.left
        name, *says = self.lines(room)
        longest = max(NAME * len(name), self.size * max(map(len, says)))
        return max(64, round(LETTER * longest) + 12)

    def row(self, rooms: Sequence[str], x: float, y: float, w: float = 0) -> None:
        """Boxes side by side, equally tall, each as wide as its text or `w`."""
        tall = 16 + NAME + 1.2 * self.size * max(len(self.lines(room)) - 1 for room in rooms)
        for room in rooms:
            wide = w or self.wide(room)
            self.boxes[room] = Box(room, self.lines(room), x, y, wide, round(tall))
            x += wide + BETWEEN
        self.height = max(self.height, y + round(tall))

    def way(self) -> None:
        """The spine straight down, and to its right the other rooms of each row."""
        rows, spine = house.rows_of_the_way(), set(house.spine())
        widest = max(self.wide(one) for one in spine - {STEP})
        straight = self.left + 20 + max(widest / 2, LETTER * self.size * len(RESULT))
        for names in rows:
            y = self.height + (self.gap if self.boxes else 4)
            names = sorted(names, key=lambda one: (one not in spine, self._before(one)))
            first = self.left if names == [STEP] else straight - self.wide(names[0]) / 2
            self.row(names, first, y)

    def _before(self, room: str) -> float:
        """The mean place of the rooms that lead to this one."""
        found = [
            self.boxes[one].middle
            for one, other, _ in house.WAY
            if other == room and one in self.boxes
        ]
        return sum(found) / max(1, len(found))

    def beside(self) -> None:
        """The rooms that are not on the way, equally wide, at the right end of their rows."""
        rows, found = house.rows_of_the_way(), house.beside()
        w = max(map(self.wide, found))
        for room, number in found.items():
            x, y, h = self.width - w, self.boxes[rows[number][0]].y, self.boxes[rows[number][0]].h
            self.boxes[room] = Box(room, self.lines(room), x, y, w, h)

    def below(self) -> None:
        """The same, in rows of their own below the way."""
        found = sorted(house.beside(), key=lambda room: house.beside()[room])
        w = max(map(self.wide, found))
        each = int((self.width - self.left + BETWEEN) // (w + BETWEEN))
        w = (self.width - self.left + BETWEEN) / each - BETWEEN
        y = self.height + 40
        for i in range(0, len(found), each):
            self.row(found[i : i + each], self.left, y, w)
            y = self.height + 10


def draw() -> dict[str, Drawing]:
    return {"house": _wide(), "house-narrow": _narrow()}


def wide_plan() -> Plan:
    plan = Plan(width=490, letters=30, size=10, gap=22)
    plan.way()
    plan.beside()
    return plan


def narrow_plan() -> Plan:
    plan = Plan(width=PHONE - 4, letters=14, size=12, gap=24)
    plan.way()
    plan.below()
    return plan


def _wide() -> Drawing:
    plan = wide_plan()
    picture = Drawing(640, plan.height + 4, TITLE)
    _way(picture, plan)
    _boxes(picture, plan.boxes.values(), plan.size)
    first = min((plan.boxes[room] for room in house.beside()), key=lambda box: box.y)
    picture.text(first.middle, first.y - 14, BESIDE, size=plan.size)
    edge = plan.width + 16
    picture.line([(edge, 4), (edge, plan.height)], ink="faint", dash="4 4")
    for room in house.apart():
        box = Box(room, plan.lines(room), edge + 16, 4, 636 - edge - 16, plan.height - 4)
        picture.box(box.x, box.y, box.w, box.h)
        for i, line in enumerate([*box.lines, "", *APART]):
            picture.text(box.middle, 24 + 15 * i, line, size=NAME if i == 0 else plan.size)
    return picture


def _narrow() -> Drawing:
    plan = narrow_plan()
    middle, below, tall = plan.width / 2, plan.height, 16 + 3 * 15
    first = min(plan.boxes[room].y for room in house.beside())
    picture = Drawing(PHONE, below + 16 + tall, TITLE)
    _way(picture, plan)
    _boxes(picture, plan.boxes.values(), plan.size)
    picture.text(4, first - 14, f"{BESIDE}:", anchor="start")
    picture.line([(4, below + 8), (plan.width, below + 8)], ink="faint", dash="4 4")
    for room in house.apart():
        picture.box(4, below + 16, plan.width - 4, tall - 4)
        for i, line in enumerate([*plan.lines(room)[:1], house.says(room), " ".join(APART)]):
            picture.text(middle, below + 30 + 15 * i, line)
    return picture


def _boxes(picture: Drawing, boxes: Iterable[Box], size: float) -> None:
    for box in boxes:
        picture.box(box.x, box.y, box.w, box.h, fill=_fill(box.room))
        for i, line in enumerate(box.lines):
            y = box.y + 6 + NAME / 2 + (i and NAME / 2 + 2 + (i - 0.4) * 1.2 * size)
            picture.text(box.middle, y, line, size=size if i else NAME)


def _fill(room: str) -> str:
    """What leads to a step, the step, what it leads to, and the packages at the end."""
    if room == STEP:
        return "b"
    if room in house.led_to(STEP):
        return "c" if room.startswith("jax_engine") else "d"
    return "a" if STEP in house.led_to(room) else "free"


def _way(picture: Drawing, plan: Plan) -> None:
    for one, other, what in house.WAY:
        points = path(plan, one, other)
        if len(points) > 2:
            picture.line(points[:-1], width=1)
        (x1, y1), (x2, y2) = points[-2:]
        picture.arrow(x1, y1, x2, y2)
        if what:
            picture.text(x1 + 8, (y1 + y2) / 2, what, anchor="start", size=plan.size)
    step, back = plan.boxes[STEP], plan.boxes[BACK]
    x, y = plan.left + 10, back.y + back.h / 2
    picture.line([(x, step.y), (x, y)], width=1)
    picture.arrow(x, y, back.x, y)
    picture.text(x + 7, step.y - plan.gap / 2, RESULT, anchor="start", size=plan.size)


def path(plan: Plan, one: str, other: str) -> list[tuple[float, float]]:
    """Straight down where nothing is between; else across, as far up as may be, and then down.

    Raises:
        LookupError: Each such line crosses a box.
    """
    start, end = plan.boxes[one], plan.boxes[other]
    bottom = start.y + start.h
    straight = start.middle if one != STEP else end.middle
    if end.x < straight < end.x + end.w and _clear(plan, straight, bottom, end.y):
        return [(straight, bottom), (straight, end.y)]
    x = end.middle
    side, middle = start.x + start.w, start.y + start.h / 2
    if _clear(plan, x, start.y, end.y) and not _between(plan, side, x, middle):
        return [(side, middle), (x, middle), (x, end.y)]
    x1, y = start.x + start.w - 10, bottom + plan.gap * 0.4
    for x in (end.middle, end.x + end.w - 10, end.x + 10):
        if _clear(plan, x, bottom, end.y):
            return [(x1, bottom), (x1, y), (x, y), (x, end.y)]
    raise LookupError(f"no line from {one} to {other} is free of boxes")


def _clear(plan: Plan, x: float, y1: float, y2: float) -> bool:
    """Whether no box is on this line down."""
    return not any(b.x < x < b.x + b.w and y1 < b.y + b.h and b.y < y2 for b in plan.boxes.values())


def _between(plan: Plan, x1: float, x2: float, y: float) -> bool:
    """Whether a box is on this line across."""
    return any(b.y < y < b.y + b.h and x1 < b.x + b.w and b.x < x2 for b in plan.boxes.values())
