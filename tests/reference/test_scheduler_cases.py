"""Single scenarios of the scheduler, small enough to follow by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from reference.scheduler_state import SchedulerOutput
from reference.sequence import SequenceGroup, finish_reason
from tests.support.shadow import STEP_ORDER, ShadowCache

LIMITS = {"max_num_seqs": 8, "max_num_batched_tokens": 32, "max_model_len": 32}


def new_scheduler(blocks: BlockManager, **settings: Any) -> Scheduler:
    return Scheduler(blocks, **(LIMITS | settings))


def new_group(name: str, prompt_len: int, max_tokens: int | None, n: int = 1) -> SequenceGroup:
    """A request for n samples of max_tokens tokens that nothing else ends."""
    params: Any = SimpleNamespace(
        n=n, best_of=None, max_tokens=max_tokens, min_tokens=0, stop_token_ids=[], ignore_eos=True
    )
    return SequenceGroup(name, list(range(prompt_len)), params)


def step(scheduler: Scheduler) -> list[tuple[int, int, int]]:
    """One step in which every sequence draws token 5: (seq_id, start, num_tokens) of each."""
    output = scheduler.schedule()
    scheduler.update(
        {e.seq.seq_id: [5] * e.num_samples for e in output.scheduled if e.num_samples > 0}
    )
    return [(e.seq.seq_id, e.start, e.num_tokens) for e in output.scheduled]


def lose_all_blocks(scheduler: Scheduler) -> None:
    """What happens to the last running group when others need its blocks; here between steps."""
    assert scheduler.config.preemption_mode == "recompute"
    scheduler._state.preempt(SchedulerOutput())


def test_copying_before_swapping_out_loses_the_victim() -> None:
    """I11 and I13: a copy's destination may be a block that a victim lost in this very step, so
    the order swap out, copy is needed: with the two reversed, the shadow finds wrong content."""
    blocks = BlockManager(2, 5, 4, watermark=0.0)
    scheduler = new_scheduler(blocks, preemption_mode="swap")
    scheduler.add_group(new_group("forks", 3, 2, n=2))
    scheduler.add_group(new_group("victim", 3, 4))
    right, wrong = ShadowCache(2, 5, 4), ShadowCache(2, 5, 4)
    reversed_order = [STEP_ORDER[i] for i in (0, 2, 1, 3)]

    def one_step() -> Any:
        output = scheduler.schedule()
        right.replay(output, blocks)
        wrong.replay(output, blocks, reversed_order)
        scheduler.update({e.seq.seq_id: [5] * e.num_samples for e in output.scheduled})
        return output

    one_step()
    output = one_step()
    assert output.preempted == [("victim", "swap")]
    swapped_out = {gpu for gpu, _ in output.blocks_to_swap_out}
    assert swapped_out & {destination for _, destination in output.blocks_to_copy}
    with pytest.raises(AssertionError, match="position 0 should hold"):
        one_step()


def test_a_recomputed_group_is_rebuilt_from_its_leader() -> None:
    """Unified: the leader first, in chunks; its siblings attach when the prompt is there."""
    blocks = BlockManager(2, 12)
    scheduler = new_scheduler(blocks, max_num_batched_tokens=5, preemption_mode="recompute")
    group = new_group("r", 5, 8, n=2)
    scheduler.add_group(group)
    assert step(scheduler) == [(0, 0, 5)]
    assert step(scheduler) == [(0, 5, 1), (1, 5, 1)]
    lose_all_blocks(scheduler)
    assert scheduler.waiting == [group] and blocks.num_free_gpu_blocks == 12
    assert [seq.num_computed_tokens for seq in group.seqs] == [0, 0]
    assert step(scheduler) == [(0, 0, 5)]  # the leader has 7 tokens by now
    assert [seq.num_computed_tokens for seq in group.seqs] == [5, 4]
    assert blocks.block_table(1) == blocks.block_table(0)[:2]
    assert step(scheduler) == [(0, 5, 2), (1, 4, 3)]
    assert step(scheduler) == [(0, 7, 1), (1, 7, 1)]


@pytest.mark.parametrize("scheduling", ["sosp", "sosp-mixed"])
def test_a_recomputed_group_is_rebuilt_alone_and_first(scheduling: str) -> None:
    """SOSP: all blocks at once; what does not fit into the step comes in the next, before all."""
    blocks = BlockManager(2, 20)
    scheduler = new_scheduler(
        blocks,
        scheduling=scheduling,
        preemption_mode="recompute",
        max_num_batched_tokens=12,
        max_model_len=12,
    )
    scheduler.add_group(new_group("r", 5, 6, n=3))
    assert step(scheduler) == [(0, 0, 5)]
    for _ in range(3):
        step(scheduler)
    lose_all_blocks(scheduler)
    scheduler.add_group(new_group("later", 2, 2))
    assert step(scheduler) == [(0, 0, 9)]  # 5 more tokens of sequence 1 would make 14
    assert blocks.block_table(1)[:2] == blocks.block_table(0)[:2]
    assert step(scheduler) == [(1, 4, 5), (2, 4, 5)]
    assert (3, 0, 2) in step(scheduler)


def test_rebuilding_takes_as_many_steps_as_it_must() -> None:
    """SOSP: 3 sequences of which only one fits into a step, after the leader."""
    scheduler = new_scheduler(
        BlockManager(2, 20),
        scheduling="sosp",
        preemption_mode="recompute",
        max_num_batched_tokens=10,
        max_model_len=10,
    )
    scheduler.add_group(new_group("r", 3, 7, n=3))
    for _ in range(5):
        step(scheduler)
    lose_all_blocks(scheduler)
    assert step(scheduler) == [(0, 0, 8)]
    assert step(scheduler) == [(1, 2, 6)]
    assert step(scheduler) == [(2, 2, 6)]
    assert step(scheduler) == [(0, 8, 1), (1, 8, 1), (2, 8, 1)]


def test_a_budget_smaller_than_a_group_serves_its_first_sequences() -> None:
    scheduler = new_scheduler(BlockManager(2, 20), max_num_batched_tokens=2)
    scheduler.add_group(new_group("r", 2, 2, n=3))
    assert step(scheduler) == [(0, 0, 2)]
    assert step(scheduler) == [(0, 2, 1), (1, 2, 1)]
    assert step(scheduler) == [(2, 2, 1)]


def test_a_prompt_that_is_not_to_be_chunked_waits_for_a_step_with_room() -> None:
    scheduler = new_scheduler(BlockManager(2, 40), enable_chunked_prefill=False)
    scheduler.add_group(new_group("a", 20, 2))
    scheduler.add_group(new_group("b", 20, 2))
    assert step(scheduler) == [(0, 0, 20)]
    assert step(scheduler) == [(0, 20, 1), (1, 0, 20)]


def test_a_group_goes_on_when_its_leader_ends_in_the_middle_of_being_rebuilt() -> None:
    blocks = BlockManager(2, 12)
    scheduler = new_scheduler(blocks, max_num_batched_tokens=2, preemption_mode="recompute")
    group = new_group("r", 5, 2, n=2)
    scheduler.add_group(group)
    for _ in range(3):
        step(scheduler)
    lose_all_blocks(scheduler)
    assert step(scheduler) == [(0, 0, 2)]
    scheduler.finish_sequence(0, "stop", "word")
    assert step(scheduler) == [(1, 0, 2)]
    while scheduler.has_unfinished():
        assert step(scheduler)
    assert [seq.finish_reason for seq in group.seqs] == ["stop", "length"]


def test_what_was_aborted_since_the_plan_is_passed_over() -> None:
    """I22: between schedule and update."""
    blocks = BlockManager(2, 12)
    scheduler = new_scheduler(blocks)
    scheduler.add_group(new_group("a", 3, 2))
    scheduler.add_group(new_group("b", 3, 1))
    scheduler.schedule()
    assert scheduler.abort("a")
    assert [group.request_id for group in scheduler.update({1: [5]})] == ["b"]
    assert blocks.num_free_gpu_blocks == 12 and not scheduler.has_unfinished()


def test_long_prompts_leave_room_for_others() -> None:
    scheduler = new_scheduler(BlockManager(2, 30), long_prefill_token_threshold=4)
    scheduler.add_group(new_group("long", 10, 1))
    scheduler.add_group(new_group("short", 3, 1))
    assert step(scheduler) == [(0, 0, 4), (1, 0, 3)]
    assert step(scheduler) == [(0, 4, 4)]
    assert step(scheduler) == [(0, 8, 2)]


def test_end_of_sequence_and_stop_tokens_count_from_min_tokens_on() -> None:
    """The order: min_tokens, end of sequence, stop tokens, lengths."""
    group = new_group("r", 1, 10)
    group.eos_token_ids = {2}
    vars(group.params).update(min_tokens=2, stop_token_ids=[2, 3], ignore_eos=False)
    reasons = []
    for token_id in (2, 3, 4, 2):
        group.leader.append(token_id)
        reasons.append(finish_reason(group.leader, group, max_model_len=32))
    assert reasons == [None, ("stop", 3), None, ("stop", None)]
    group.params.ignore_eos = True  # type: ignore[misc]
    assert finish_reason(group.leader, group, max_model_len=32) == ("stop", 2)
    assert finish_reason(group.leader, group, max_model_len=5) == ("stop", 2)
    vars(group.params).update(min_tokens=5)
    assert finish_reason(group.leader, group, max_model_len=5) == ("length", None)


@pytest.mark.parametrize("limits", [(2, 32), (None, 3), (2, 3)])
def test_an_end_at_the_last_place_is_an_end(limits: tuple[int | None, int]) -> None:
    """An output that ends by itself was not cut short, though it could not have gone on."""
    max_tokens, max_model_len = limits
    group = new_group("r", 1, max_tokens)
    group.eos_token_ids = {2}
    vars(group.params).update(stop_token_ids=[3], ignore_eos=False)
    reasons = []
    for token_id in (2, 3, 4):
        group.leader.token_ids[1:] = [7, token_id]
        reasons.append(finish_reason(group.leader, group, max_model_len))
    assert reasons == [("stop", None), ("stop", 3), ("length", None)]
