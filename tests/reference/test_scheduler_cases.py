"""Single scenarios of the scheduler, small enough to follow by hand."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from reference.admission import AdmissionError
from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from reference.scheduler_state import SchedulerOutput
from reference.sequence import SequenceGroup
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


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens", "n", "field", "need", "limit"),
    [
        (0, 4, 1, "prompt_len", 0, 1),
        (32, 4, 1, "prompt_len", 32, 31),
        (3, 4, 9, "best_of", 9, 8),
        (17, 2, 1, "GPU blocks", 11, 10),  # 9 blocks, 1 of head-room, 1 of watermark
        (4, 4, 2, "GPU blocks", 9, 10),  # accepted: 2 shared, 2 x 2 of their own, 2, 1
        (4, 6, 2, "GPU blocks", 11, 10),
        (3, None, 1, "GPU blocks", 18, 10),
    ],
)
def test_admission_is_decided_by_numbers(
    prompt_len: int, max_tokens: int | None, n: int, field: str, need: int, limit: int
) -> None:
    """I21, and the rule of 2.5: accepted iff need <= limit."""
    scheduler = new_scheduler(BlockManager(2, 10, watermark=0.1))
    group = new_group("r", prompt_len, max_tokens, n)
    if 0 < need <= limit:
        scheduler.add_group(group)
        assert scheduler.waiting == [group]
        return
    with pytest.raises(AdmissionError) as caught:
        scheduler.add_group(group)
    assert (caught.value.field, caught.value.need, caught.value.limit) == (field, need, limit)
    assert not scheduler.has_unfinished() and group.leader.seq_id == -1


def test_an_id_in_use_is_refused_and_free_again_later() -> None:
    """I16 and I21."""
    scheduler = new_scheduler(BlockManager(2, 12))
    scheduler.add_group(new_group("a", 3, 1))
    with pytest.raises(AdmissionError, match="request 'a': requests of this id = 2"):
        scheduler.add_group(new_group("a", 3, 1))
    step(scheduler)
    scheduler.add_group(new_group("a", 3, 1))


@pytest.mark.parametrize(
    ("settings", "prompt_len", "n"),
    [
        ({}, 3, 9),  # more samples than max_num_seqs
        ({"scheduling": "sosp"}, 3, 9),
        ({"enable_chunked_prefill": False}, 20, 1),  # a prompt larger than the pool
        ({"scheduling": "sosp-mixed"}, 20, 1),
        ({"scheduling": "sosp"}, 33, 1),  # a prompt larger than a step
    ],
)
def test_without_the_admission_rule_a_request_that_cannot_fit_hangs(
    settings: dict[str, Any], prompt_len: int, n: int
) -> None:
    """The published hangs (2.5), live: a step is empty and leaves everything as it was, so all
    further steps are the same. Whoever comes later waits behind it for ever."""
    blocks = BlockManager(2, 8)
    scheduler = new_scheduler(blocks, admission_rule=False, **settings)
    scheduler.add_group(new_group("too large", prompt_len, 4, n))
    scheduler.add_group(new_group("behind it", 1, 1))
    before = copy.deepcopy(vars(scheduler._state))
    for _ in range(20):
        assert step(scheduler) == []
    after = vars(scheduler._state)
    assert [g.request_id for g in after["waiting"]] == [g.request_id for g in before["waiting"]]
    assert vars(after["blocks"].gpu) == vars(before["blocks"].gpu)
    assert scheduler.has_unfinished()


@pytest.mark.parametrize("preemption_mode", ["recompute", "swap"])
@pytest.mark.parametrize("scheduling", ["unified", "sosp", "sosp-mixed"])
def test_without_the_admission_rule_a_request_that_outgrows_the_pool_hangs(
    scheduling: str, preemption_mode: Any
) -> None:
    """It preempts itself, again and again or once for all, and never finishes."""
    scheduler = new_scheduler(
        BlockManager(2, 4, 4),
        admission_rule=False,
        scheduling=scheduling,
        preemption_mode=preemption_mode,
    )
    scheduler.add_group(new_group("grows", 5, 20))
    for _ in range(100):
        step(scheduler)
    assert scheduler.has_unfinished()
    assert scheduler.num_preemptions[preemption_mode] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheduling": "orca"}, "scheduling='orca' must be one of"),
        ({"policy": "lifo"}, "policy='lifo' must be one of"),
        ({"preemption_mode": "drop"}, "preemption_mode='drop' must be one of"),
        ({"max_num_seqs": 0}, "max_num_seqs=0 must be at least 1"),
        ({"max_model_len": 1}, "max_model_len=1 must be at least 2"),
        ({"long_prefill_token_threshold": -1}, "long_prefill_token_threshold=-1 must be at"),
        (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 8},
            "max_num_batched_tokens=8 must be at least 32 = max_model_len",
        ),
        (
            {"enable_chunked_prefill": False, "long_prefill_token_threshold": 4},
            "long_prefill_token_threshold=4 must be 0 unless",
        ),
        (
            {"scheduling": "sosp", "max_num_seqs": 40},
            "max_num_batched_tokens=32 must be at least 40 = max_num_seqs in sosp",
        ),
    ],
)
def test_settings_under_which_requests_could_hang_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        new_scheduler(BlockManager(2, 10), **settings)


def test_prefix_caching_is_for_unified_scheduling() -> None:
    blocks = BlockManager(2, 10, enable_prefix_caching=True)
    with pytest.raises(ValueError, match="needs scheduling='unified', not 'sosp'"):
        new_scheduler(blocks, scheduling="sosp")
