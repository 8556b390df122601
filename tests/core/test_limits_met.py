"""Limits of tokens, blocks and sequences: what just fits goes in, one more does not (I18)."""

from typing import Any

import pytest

from jax_engine.core import BlockManager, OutOfBlocksError, Scheduler
from tests.core.build import make_group, make_scheduler, occupy, step
from tests.support.beams import beam_params, step_beams

MODES = ["unified", "sosp", "sosp-mixed"]


def planned(scheduler: Scheduler) -> list[tuple[str, int]]:
    """One step: whose tokens, and how many."""
    return [(one.group.request_id, one.num_tokens) for one in step(scheduler).scheduled]


@pytest.mark.parametrize("scheduling", MODES)
def test_prompts_fill_the_budget(scheduling: Any) -> None:
    scheduler = make_scheduler(
        40, scheduling=scheduling, max_num_batched_tokens=10, max_model_len=10, max_num_seqs=10
    )
    for name in "abc":
        scheduler.add_group(make_group(name, 5))
    assert planned(scheduler) == [("a", 5), ("b", 5)]
    assert [group.request_id for group in scheduler.waiting] == ["c"]
    assert scheduler.block_manager.num_used_gpu_blocks == 6, "c holds nothing yet"
    assert scheduler.running[0].num_cached_tokens == 0


def test_without_budget_nothing_is_admitted() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=4, max_num_seqs=4)
    scheduler.add_group(make_group("a", 4))
    scheduler.add_group(make_group("b", 4))
    assert planned(scheduler) == [("a", 4)]
    assert len(scheduler.waiting) == 1 and scheduler.block_manager.num_used_gpu_blocks == 2


def test_running_sequences_get_what_the_budget_has() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=4, max_num_seqs=4)
    scheduler.add_group(make_group("a", 1))
    scheduler.add_group(make_group("b", 12))
    assert planned(scheduler) == [("a", 1), ("b", 3)]
    assert planned(scheduler) == [("a", 1), ("b", 3)]
    scheduler.abort("a")
    assert [planned(scheduler) for _ in range(3)] == [[("b", 4)], [("b", 2)], [("b", 1)]]


@pytest.mark.parametrize("budget", [2, 3])
def test_the_youngest_wait_for_the_budget(budget: int) -> None:
    scheduler = make_scheduler(max_num_batched_tokens=budget, max_num_seqs=budget)
    names = ["a", "b", "c"][:budget]
    for name in names:
        scheduler.add_group(make_group(name, 1, max_tokens=12))
    assert planned(scheduler) == [(name, 1) for name in names]
    assert planned(scheduler) == [(name, 1) for name in names]
    scheduler.abort(names[-1])
    scheduler.add_group(make_group("long", 12))
    assert planned(scheduler) == [*((name, 1) for name in names[:-1]), ("long", 1)]


@pytest.mark.parametrize(("length", "admitted"), [(8, True), (9, False)])
def test_decodes_leave_the_rest_of_a_mixed_step(length: int, admitted: bool) -> None:
    scheduler = make_scheduler(
        40, scheduling="sosp-mixed", max_num_batched_tokens=10, max_model_len=10
    )
    for name in "ab":
        scheduler.add_group(make_group(name, 4))
    step(scheduler)
    scheduler.add_group(make_group("c", length))
    assert planned(scheduler) == [("a", 1), ("b", 1), ("c", length)][: 2 + admitted]


@pytest.mark.parametrize("scheduling", MODES)
@pytest.mark.parametrize(("others", "admitted"), [(6, True), (7, False)])
def test_a_prompt_may_take_the_last_block(scheduling: Any, others: int, admitted: bool) -> None:
    scheduler = make_scheduler(8, scheduling=scheduling)
    assert scheduler.block_manager.watermark_blocks == 0
    scheduler.add_group(make_group("a", 4, max_tokens=2))
    occupy(scheduler.block_manager, others)
    assert bool(scheduler.schedule().scheduled) == admitted


@pytest.mark.parametrize("scheduling", MODES)
def test_a_decode_may_take_the_last_block(scheduling: Any) -> None:
    scheduler = make_scheduler(8, scheduling=scheduling)
    scheduler.add_group(make_group("a", 4, max_tokens=4))
    step(scheduler)
    blocks = scheduler.block_manager
    occupy(blocks, blocks.num_free_gpu_blocks - 1)
    out = step(scheduler)
    assert out.preempted == [] and [one.num_tokens for one in out.scheduled] == [1]
    assert blocks.num_free_gpu_blocks == 0


def test_of_a_cached_prompt_the_rest_counts() -> None:
    """Against the budget and against the free blocks, of which its free hits are some."""
    scheduler = make_scheduler(8, caching=True, max_num_batched_tokens=10)
    scheduler.add_group(make_group("first", 8, max_tokens=1))
    step(scheduler)
    blocks = scheduler.block_manager
    occupy(blocks, 4)  # those that never held anything
    for name in ("again", "next"):
        scheduler.add_group(make_group(name, 8, max_tokens=1))
    out = scheduler.schedule()
    assert [(one.start, one.num_tokens, one.num_samples) for one in out.scheduled] == [(6, 2, 1)]
    assert [group.num_cached_tokens for group in scheduler.running] == [6]


@pytest.mark.parametrize("free", [1, 2])
def test_hits_that_are_in_use_need_no_free_block(free: int) -> None:
    scheduler = make_scheduler(10, caching=True, max_num_batched_tokens=10)
    scheduler.add_group(make_group("first", 8, max_tokens=5))
    step(scheduler)
    blocks = scheduler.block_manager
    occupy(blocks, blocks.num_free_gpu_blocks - free)
    for name in ("again", "other"):
        scheduler.add_group(make_group(name, 8, max_tokens=1))
    found = {one.group.request_id: one.num_tokens for one in scheduler.schedule().scheduled}
    # The first one's decode takes a block of its own
    assert found == ({"first": 1} if free == 1 else {"first": 1, "again": 2})


@pytest.mark.parametrize("scheduling", MODES)
@pytest.mark.parametrize(("wanted", "admitted"), [(2, True), (3, False)])
def test_a_sample_that_ends_leaves_its_place(scheduling: Any, wanted: int, admitted: bool) -> None:
    scheduler = make_scheduler(40, scheduling=scheduling, max_num_seqs=4)
    group = make_group("a", 4, n=3)
    scheduler.add_group(group)
    step(scheduler)
    scheduler.add_group(make_group("b", 4, n=wanted))
    step(scheduler)
    assert len(scheduler.waiting) == 1, "3 and 2 are more than 4"
    scheduler.finish_sequence(group.seqs[0], group, "stop")
    step(scheduler)
    assert (not scheduler.waiting) == admitted


@pytest.mark.parametrize("scheduling", MODES)
def test_no_more_run_than_may(scheduling: Any) -> None:
    scheduler = make_scheduler(40, scheduling=scheduling, max_num_seqs=4)
    for name, n in (("a", 1), ("b", 2), ("c", 1), ("d", 1)):
        scheduler.add_group(make_group(name, 2, n=n))
    assert planned(scheduler) == [("a", 2), ("b", 2), ("c", 2)]


@pytest.mark.parametrize("scheduling", MODES)
def test_a_beam_search_that_ends_leaves_its_places(scheduling: Any) -> None:
    scheduler = make_scheduler(40, scheduling=scheduling, max_num_seqs=3)
    scheduler.add_group(make_group("a", n=3, max_tokens=2, **beam_params()))
    step_beams(scheduler)
    scheduler.add_group(make_group("b"))
    steps = [{one.group.request_id for one in step_beams(scheduler).scheduled} for _ in range(2)]
    assert steps == [{"a"}, {"b"}]


def test_tables_move_together_from_one_device_only() -> None:
    blocks = BlockManager(2, 8, 8)
    for seq_id in (0, 1):
        blocks.allocate_slots(seq_id, [1, 2], 0, 2)
    blocks.swap_out([0])
    assert not blocks.can_swap_out([0, 1]) and not blocks.can_swap_in([0, 1], 0)
    for move in (blocks.swap_out, blocks.swap_in):
        with pytest.raises(OutOfBlocksError):
            move([0, 1])
