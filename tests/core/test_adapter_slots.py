"""Adapters come to slots, stay while a running group needs them, and wait for each other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.core import Scheduler, SequenceGroup
from jax_engine.core.adapter_slots import AdapterSlots
from jax_engine.core.scheduler_output import SchedulerOutput, make_step
from jax_engine.errors import ConfigError, InvalidRequestError
from tests.core.build import make_params, make_scheduler, step
from tests.support.some_adapters import some_adapter

A, B, C = (some_adapter(i) for i in range(3))


def make_group(name: str, number: int | None, prompt: int = 4, **params: Any) -> SequenceGroup:
    adapter = None if number is None else some_adapter(number)
    tokens = list(range(100, 100 + prompt))
    return SequenceGroup(name, tokens, make_params(**params), {2}, adapter=adapter)


def names(scheduler: Scheduler, queue: str) -> list[str]:
    return [group.request_id for group in getattr(scheduler, queue)]


def new(output: SchedulerOutput) -> list[tuple[int, str]]:
    return [(slot, adapter.digest) for slot, adapter in output.adapters]


def test_slots_are_filled_in_order_and_the_longest_idle_goes_first() -> None:
    slots = AdapterSlots(2)
    assert slots.pin(A) == (1, True) and slots.pin(B) == (2, True)
    assert slots.pin(A) == (1, False), "twice"
    assert not slots.has_room_for(C)
    assert slots.has_room_for(A) and slots.has_room_for(None)
    slots.unpin(A)
    assert not slots.has_room_for(C), "one more group has it"
    slots.unpin(B)
    slots.unpin(A)
    assert slots.held() == {A.digest: 1, B.digest: 2} and slots.pinned() == {}
    assert slots.pin(C) == (2, True), "B was left before A"
    assert slots.pin(A) == (1, False), "it is still there"
    assert not slots.has_room_for(B), "A is idle no more"
    assert slots.pinned() == {A.digest: 1, C.digest: 1}
    slots.unpin(A)
    slots.clear()
    assert slots.held() == {} and slots.pin(C) == (1, True) and slots.pin(B) == (2, True)
    assert not slots.has_room_for(A), "nobody left it here: what was idle is forgotten, too"


@given(
    num_slots=st.integers(1, 4),
    moves=st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=60),
)
def test_i54_slots_against_a_list_of_who_was_left_when(
    num_slots: int, moves: list[tuple[bool, int]]
) -> None:
    slots = AdapterSlots(num_slots)
    holds: list[int | None] = [None] * num_slots  # what is in each slot
    pins: list[int] = []
    left: list[int] = []  # in the order in which they were left, those that are on the device
    for pins_it, number in moves:
        adapter = some_adapter(number)
        if not pins_it:
            if number in pins:
                slots.unpin(adapter)
                pins.remove(number)
                if number not in pins:
                    left.append(number)
            continue
        room = number in holds or None in holds or bool(left)
        assert slots.has_room_for(adapter) == room
        if not room:
            continue
        found = slots.pin(adapter)
        if number in holds:
            assert found == (holds.index(number) + 1, False)
        else:
            place = holds.index(None) if None in holds else holds.index(left.pop(0))
            holds[place] = number
            assert found == (place + 1, True)
        left = [one for one in left if one != number]
        pins.append(number)
        assert slots.pinned() == {some_adapter(one).digest: pins.count(one) for one in set(pins)}
    assert len(slots.held()) <= num_slots


def test_a_blocked_group_is_not_overtaken() -> None:
    """A group without an adapter does not overtake it, nor one whose adapter is there."""
    scheduler = make_scheduler(max_loras=1)
    for name, number in (("a", 0), ("b", 1), ("c", None), ("d", 0)):
        scheduler.add_group(make_group(name, number, max_tokens=2))
    first = step(scheduler)
    assert new(first) == [(1, A.digest)] and names(scheduler, "running") == ["a"]
    assert new(step(scheduler)) == [] and names(scheduler, "waiting") == ["b", "c", "d"]
    second = step(scheduler)
    assert new(second) == [(1, B.digest)] and names(scheduler, "running") == ["b", "c"]
    step(scheduler)
    assert new(step(scheduler)) == [(1, A.digest)] and names(scheduler, "running") == ["d"]


@pytest.mark.parametrize("scheduling", ["unified", "sosp", "sosp-mixed"])
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_a_preempted_group_gives_its_slot_up_and_may_come_back_to_another(
    scheduling: str, mode: str
) -> None:
    scheduler = make_scheduler(
        num_gpu_blocks=6, max_loras=2, scheduling=scheduling, preemption_mode=mode
    )
    old, young = make_group("old", 0, 3), make_group("young", 1, 3)
    for group in (old, young):
        scheduler.add_group(group)
    while not (output := step(scheduler)).preempted:
        assert young.adapter_slot in (0, 2)
    assert output.preempted == [("young", mode)]
    assert young.adapter_slot == 0 and scheduler.slots.pinned() == {A.digest: 1}
    scheduler.abort("old")
    between = make_group("between", 2, 3, max_tokens=1)
    scheduler.abort("young")
    scheduler.add_group(between)
    assert new(step(scheduler)) == [(2, C.digest)]


def test_a_slot_is_pinned_from_admission_to_the_end_of_each_part() -> None:
    """Three samples, one at a time: between two parts another one may have the slot."""
    scheduler = make_scheduler(max_num_seqs=1, max_loras=1)
    group = make_group("a", 0, n=3, max_tokens=1)
    scheduler.add_group(group)
    assert group.part_size == 1
    loads = [new(step(scheduler)) for _ in range(3)]
    assert loads == [[(1, A.digest)], [], []]
    assert not scheduler.has_unfinished() and scheduler.slots.pinned() == {}


@pytest.mark.parametrize("end", ["abort", "finish_sequence", "recompute_all", "clear"])
def test_whatever_ends_a_group_s_run_unpins_its_adapter(end: str) -> None:
    scheduler = make_scheduler(max_loras=2)
    group = make_group("a", 0)
    scheduler.add_group(group)
    step(scheduler)
    assert scheduler.slots.pinned() == {A.digest: 1}
    if end == "abort":
        scheduler.abort("a")
    elif end == "finish_sequence":
        scheduler.finish_sequence(group.seqs[0], group, "stop", "word")
    else:
        getattr(scheduler, end)()
    assert scheduler.slots.pinned() == {}
    assert scheduler.slots.held() == ({} if end == "clear" else {A.digest: 1})
    if end == "recompute_all":
        assert new(step(scheduler)) == [] and group.adapter_slot == 1


def test_a_step_says_what_is_put_where_and_each_row_where_its_own_is() -> None:
    scheduler = make_scheduler(max_loras=2)
    for name, number in (("a", 1), ("b", None), ("c", 0), ("d", 1)):
        scheduler.add_group(make_group(name, number))
    plan = scheduler.schedule()
    made = make_step(plan, scheduler.block_manager, [], [])
    assert [row.adapter for row in made.rows] == [1, 0, 2, 1]
    assert made.adapters == [(1, B), (2, A)]
    scheduler.advance()
    made = make_step(scheduler.schedule(), scheduler.block_manager, [], [])
    assert [row.adapter for row in made.rows] == [1, 0, 2, 1] and made.adapters == []


def test_drafts_of_a_row_are_verified_with_its_adapter() -> None:
    scheduler = make_scheduler(max_loras=1, max_draft_tokens=4)
    scheduler.add_group(make_group("a", 0))
    step(scheduler)
    plan = scheduler.schedule({0: [1, 2]})
    [row] = make_step(plan, scheduler.block_manager, [], []).rows
    assert (row.num_draft, row.adapter) == (2, 1)


def test_no_prefix_is_shared_across_adapters_nor_across_salts_of_one() -> None:
    scheduler = make_scheduler(num_gpu_blocks=40, caching=True, max_loras=4, max_num_seqs=20)
    cases = [(0, None), (None, None), (1, None), (0, None), (None, None), (0, "s"), (0, "s")]
    found = []
    for i, (number, salt) in enumerate(cases):
        adapter = None if number is None else some_adapter(number)
        group = SequenceGroup(
            str(i),
            range(100, 109),
            make_params(max_tokens=1),
            {2},
            cache_salt=salt,
            adapter=adapter,
        )
        assert group.own_salt == salt
        scheduler.add_group(group)
        step(scheduler)
        found.append(group.num_cached_tokens)
    assert found == [0, 0, 0, 8, 8, 0, 8]


def test_a_salt_is_no_digest() -> None:
    """A client that knows an adapter's digest cannot reach its blocks with a salt."""
    salted = SequenceGroup("a", [1], make_params(), cache_salt=A.digest)
    assert salted.cache_salt != make_group("b", 0).cache_salt


def test_without_slots_an_adapter_is_refused_and_nothing_waits_for_ever() -> None:
    scheduler = make_scheduler()
    with pytest.raises(InvalidRequestError, match="has no slots for adapters"):
        scheduler.add_group(make_group("a", 0))
    assert not scheduler.has_unfinished()
    with pytest.raises(ConfigError, match="max_loras must be at least 0, got -1"):
        make_scheduler(max_loras=-1)


def test_a_thousand_adapters_through_eight_slots() -> None:
    scheduler = make_scheduler(num_gpu_blocks=64, max_loras=8, max_num_seqs=16)
    for number in range(1000):
        scheduler.add_group(make_group(str(number), number, max_tokens=1 + number % 3))
    loads = 0
    while scheduler.has_unfinished():
        loads += len(step(scheduler).adapters)
        assert len(scheduler.slots.held()) <= 8 and len(scheduler.slots.pinned()) <= 8
    assert loads == 1000
    assert len(scheduler.slots._slots) + len(scheduler.slots._idle) == 16
    assert not scheduler.slots.pinned()
