"""What the controller forgets: everything (`clear`), the last request (`take_back`), all KV."""

from typing import Any

import pytest

from jax_engine.core import Scheduler, SequenceStatus
from tests.core.build import TOKEN, make_group, make_scheduler, step, tokens_for
from tests.support.integrity import check_integrity

MODES = ["unified", "sosp", "sosp-mixed"]


def crowd(scheduling: Any = "unified", mode: Any = "swap", caching: bool = False) -> Scheduler:
    """Three requests of two samples that fit one by one, and not together."""
    scheduler = make_scheduler(12, scheduling=scheduling, preemption_mode=mode, caching=caching)
    for i in range(3):
        scheduler.add_group(make_group(f"r{i}", 4, n=2, max_tokens=6))
    return scheduler


def plans(scheduler: Scheduler) -> list[Any]:
    """What each step computes, until all have finished, without the numbers of sequences."""
    steps = []
    while scheduler.has_unfinished():
        out = step(scheduler)
        steps.append(
            [(one.group.request_id, one.seq.index, *one[2:]) for one in out.scheduled]
            + [out.blocks_to_swap_in, out.blocks_to_swap_out, out.blocks_to_copy, out.preempted]
        )
    return steps


@pytest.mark.parametrize("scheduling", MODES)
def test_what_was_cleared_is_as_it_was_at_first(scheduling: str) -> None:
    """After an exception anywhere: in the middle of a step, some swapped, some waiting."""
    scheduler = crowd(scheduling, caching=scheduling == "unified")
    while not scheduler.swapped:
        step(scheduler)
    scheduler.add_group(make_group("r3", 4))
    groups = list(scheduler.groups.values())
    out = scheduler.schedule()
    assert [len(queue) > 0 for queue in (scheduler.waiting, scheduler.running)] == [True, True]
    scheduler.clear()
    assert {seq.finish_reason for group in groups for seq in group.seqs} == {"abort"}
    assert not scheduler.has_unfinished()
    assert scheduler.waiting == scheduler.running == scheduler.swapped == []
    assert scheduler.update(tokens_for(out)) == [], "the step that was planned is forgotten"
    blocks = scheduler.block_manager
    check_integrity(blocks)
    assert blocks.num_used_gpu_blocks == 0 and blocks.cpu.num_free == 16
    assert blocks.cached_blocks([100, 101, 102, 103, 104]) == []
    assert not scheduler.abort("r0") and not scheduler._state.seq_ids
    for i in range(3):
        scheduler.add_group(make_group(f"r{i}", 4, n=2, max_tokens=6))
    assert plans(scheduler) == plans(crowd(scheduling, caching=scheduling == "unified"))


@pytest.mark.parametrize("how", ["clear", "drop_steps", "drop_step"])
def test_a_step_that_was_planned_ahead_is_forgotten_too(how: str) -> None:
    scheduler = make_scheduler()
    scheduler.add_group(make_group("a", 4))
    scheduler.schedule()
    scheduler.advance()
    scheduler.schedule()
    if how != "clear":
        scheduler.abort("a")
    for _ in range(2 if how == "drop_step" else 1):
        getattr(scheduler, how)()
    scheduler.recompute_all()  # no step is planned
    group = make_group("b", 4)
    scheduler.add_group(group)
    step(scheduler)
    assert group.seqs[0].output_token_ids == [TOKEN], "of the new step, not of the old one"


def test_drafts_that_were_accepted_are_forgotten_too() -> None:
    scheduler = make_scheduler(max_draft_tokens=4)
    scheduler.add_group(make_group("a", 4))
    step(scheduler)
    scheduler.schedule({0: [TOKEN]})
    scheduler.update({0: [TOKEN, TOKEN]})
    scheduler.clear()
    scheduler.add_group(make_group("b", 4))
    assert [item.group.request_id for item in step(scheduler).scheduled] == ["b"]


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_the_last_request_is_taken_back(policy: Any) -> None:
    scheduler = make_scheduler(policy=policy)
    first, last, other = (make_group(name, 4) for name in "abc")
    scheduler.add_group(first)
    scheduler.add_group(last)
    scheduler.take_back(last)
    assert scheduler.waiting == [first] and list(scheduler.groups) == ["a"]
    assert not scheduler.abort("b")
    assert scheduler._state.seq_ids == {first.seqs[0].seq_id}
    scheduler.add_group(other)
    assert other.key == last.key, "its number is the next one's"
    scheduler.take_back(make_group("z", 4))  # was never added
    assert list(scheduler.groups) == ["a", "c"] and scheduler.waiting == [first, other]


@pytest.mark.parametrize("scheduling", MODES)
def test_all_is_computed_again(scheduling: str) -> None:
    """New weights: the tokens stay, and what was computed from the old ones goes."""
    scheduler = crowd(scheduling)
    while not scheduler.swapped:
        step(scheduler)
    groups = list(scheduler.groups.values())
    tokens = {seq.seq_id: list(seq.token_ids) for group in groups for seq in group.seqs}
    scheduler.recompute_all()
    blocks = scheduler.block_manager
    check_integrity(blocks)
    assert blocks.num_used_gpu_blocks == 0 and blocks.cpu.num_free == 16
    assert scheduler.waiting == groups and scheduler.running == scheduler.swapped == []
    for group in groups:
        for seq in group.seqs:
            assert (seq.num_computed_tokens, seq.status) == (0, SequenceStatus.WAITING)
            assert seq.token_ids == tokens[seq.seq_id]
    plans(scheduler)
    assert {len(seq.token_ids) for group in groups for seq in group.seqs} == {10}
    assert blocks.num_used_gpu_blocks == 0
