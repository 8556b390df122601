"""The drawing of the house: where its rooms are follows from the folders and the imports."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, pairwise

import pytest

from scripts import rooms
from scripts.figures import house
from scripts.figures.house import Plan
from scripts.figures.svg import PHONE


@pytest.fixture
def plans() -> Iterator[list[Plan]]:
    """The wide picture's and the narrow one's."""
    yield [house.wide_plan(), house.narrow_plan()]


def test_a_room_stands_below_all_that_lead_to_it() -> None:
    rows = rooms.rows_of_the_way()
    row = {room: i for i, names in enumerate(rows) for room in names}
    assert all(row[one] < row[other] for one, other, _ in rooms.WAY)
    for room, i in row.items():
        above = [row[one] for one, other, _ in rooms.WAY if other == room]
        assert i == 1 + max(above, default=-1), room
    spine = rooms.spine()
    assert [row[room] for room in spine] == list(range(len(rows)))
    ways = {(one, other) for one, other, _ in rooms.WAY}
    assert set(pairwise(spine)) <= ways


def test_each_room_is_drawn_once_and_no_box_is_on_another(plans: list[Plan]) -> None:
    for plan in plans:
        assert set(plan.boxes) == set(rooms.rooms()) - set(rooms.apart())
        for one, other in combinations(plan.boxes.values(), 2):
            beside = one.x + one.w <= other.x or other.x + other.w <= one.x
            above = one.y + one.h <= other.y or other.y + other.h <= one.y
            assert beside or above, (one.room, other.room)
        for box in plan.boxes.values():
            assert box.x >= 0 and box.x + box.w <= plan.width, box.room
            assert box.y >= 0 and box.y + box.h <= plan.height, box.room
    assert plans[1].width <= PHONE


def test_no_arrow_crosses_a_box(plans: list[Plan]) -> None:
    for plan in plans:
        for one, other, _ in rooms.WAY:
            points = house.path(plan, one, other)
            for (x1, y1), (x2, y2) in pairwise(points):
                assert x1 == x2 or y1 == y2, "lines are straight down or across"
                for box in plan.boxes.values():
                    inside = max(min(x1, x2), box.x) < min(max(x1, x2), box.x + box.w)
                    inside |= x1 == x2 and box.x < x1 < box.x + box.w
                    within = max(min(y1, y2), box.y) < min(max(y1, y2), box.y + box.h)
                    within |= y1 == y2 and box.y < y1 < box.y + box.h
                    assert not (inside and within), (one, other, box.room)


def test_a_room_beside_the_way_is_below_its_importers_if_it_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a house of five rooms on the way, by their numbers of imports."""
    way = (
        ("a", "b", ""),
        ("b", "c", ""),
        ("c", rooms.STEP, ""),
        (rooms.STEP, "d", ""),
        ("d", "e", ""),
    )
    found = {
        "a": Counter(b=1, low=1), "b": Counter(c=1, high=5), "c": Counter({rooms.STEP: 1}),
        rooms.STEP: Counter(), "d": Counter({rooms.STEP: 1, "e": 1, "low": 5}), "e": Counter(),
        "low": Counter(e=1), "high": Counter({rooms.STEP: 1}), "alone": Counter(),
    }  # fmt: skip
    monkeypatch.setattr(rooms, "WAY", way)
    monkeypatch.setattr(rooms, "rooms", lambda: found)
    assert rooms.beside() == {"high": 2, "low": 5}
    assert rooms.apart() == ["alone"]
    found |= {f"more{i}": Counter(e=1) for i in range(5)}
    with pytest.raises(LookupError, match="7 rooms beside the way have 4 rows"):
        rooms.beside()


def test_a_new_folder_is_in_the_picture_by_itself(
    monkeypatch: pytest.MonkeyPatch, plans: list[Plan]
) -> None:
    old = rooms.rooms()
    new = "jax_engine/attic"
    known = {name: Counter(imports) for name, imports in old.items()} | {new: Counter()}
    del known["jax_engine/compat"]  # so that there is a row for it
    known["jax_engine/worker"][new] = 3
    monkeypatch.setattr(rooms, "rooms", lambda: known)
    monkeypatch.setitem(rooms.SAYS, new, "what nobody needs")
    for drawing in house.draw().values():
        assert ">attic<" in drawing.svg() and ">compat<" not in drawing.svg()


def test_what_is_gone_or_not_imported_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms.rooms.cache_clear()
    for way, message in (
        ((("jax_engine/core", "jax_engine/attic", ""),), "rooms that are gone: jax_engine/attic"),
        ((("jax_engine/core", "cpu_kernels", ""),), "neither imports the other"),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(rooms, "WAY", way)
            with pytest.raises(LookupError, match=message):
                rooms.rooms()
