"""What must stay free, to the block: the watermark, and a block to grow by for each sequence."""

import pytest

from reference.allocator import OutOfBlocksError
from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from reference.scheduler_state import SchedulerOutput
from tests.reference.test_scheduler_cases import new_group, new_scheduler, step

MODES = ["unified", "sosp", "sosp-mixed"]
OTHER = 99  # a sequence that the scheduler does not know, and that takes what is to be taken


def leave_free(blocks: BlockManager, num_free: int) -> None:
    tokens = [0] * (blocks.num_free_gpu_blocks - num_free) * blocks.block_size
    assert blocks.allocate_slots(OTHER, tokens, 0, len(tokens)) is not None
    assert blocks.num_free_gpu_blocks == num_free


def swapped_out(scheduling: str, n: int) -> Scheduler:
    """One request: a prompt of 3 in two blocks of 2, which its n samples share. 2 of 12 blocks are
    the watermark."""
    blocks = BlockManager(2, 12, 12, watermark=0.2)
    scheduler = new_scheduler(blocks, scheduling=scheduling, preemption_mode="swap")
    scheduler.add_group(new_group("r", 3, 4, n=n))
    step(scheduler)
    scheduler._state.preempt(SchedulerOutput())
    assert len(scheduler.swapped) == 1
    return scheduler


@pytest.mark.parametrize("scheduling", MODES)
@pytest.mark.parametrize(("n", "least"), [(1, 5), (2, 6), (3, 7)])
def test_a_swapped_group_comes_back_when_it_can_grow_above_the_watermark(
    scheduling: str, n: int, least: int
) -> None:
    """Its 2 blocks, one more for each sequence, and 2 that stay free."""
    for num_free in (least - 1, least):
        scheduler = swapped_out(scheduling, n)
        leave_free(scheduler.block_manager, num_free)
        output = scheduler.schedule()
        assert bool(output.blocks_to_swap_in) == bool(output.scheduled) == (num_free == least)


def test_swap_in_asks_for_the_watermark() -> None:
    """I8, at the border; with and without blocks for what comes next."""
    blocks = BlockManager(2, 12, 12, watermark=0.2)
    blocks.allocate_slots(0, [1, 2, 3], 0, 3)
    blocks.swap_out([0])
    leave_free(blocks, 4)
    assert blocks.can_swap_in([0]) and not blocks.can_swap_in([0], extra=1)
    blocks.free(OTHER)
    leave_free(blocks, 3)
    assert not blocks.can_swap_in([0])
    with pytest.raises(OutOfBlocksError, match="watermark of 2"):
        blocks.swap_in([0])


@pytest.mark.parametrize("scheduling", MODES)
def test_a_prompt_is_admitted_when_the_watermark_stays_free(scheduling: str) -> None:
    for num_free in (3, 4):
        blocks = BlockManager(2, 12, watermark=0.2)
        scheduler = new_scheduler(blocks, scheduling=scheduling)
        leave_free(blocks, num_free)
        scheduler.add_group(new_group("r", 3, 4))
        assert bool(scheduler.schedule().scheduled) == (num_free == 4)


@pytest.mark.parametrize("scheduling", ["sosp", "sosp-mixed"])
def test_a_decode_step_wants_a_block_for_each_sequence(scheduling: str) -> None:
    """Whether it needs one or not: two samples with room in their blocks preempt for want of 2."""
    for num_free in (1, 2):
        blocks = BlockManager(8, 12, 12, watermark=0.0)
        scheduler = new_scheduler(blocks, scheduling=scheduling, preemption_mode="swap")
        scheduler.add_group(new_group("r", 3, 4, n=2))
        step(scheduler)
        leave_free(blocks, num_free)
        assert bool(scheduler.schedule().preempted) == (num_free == 1)


@pytest.mark.parametrize("scheduling", MODES)
def test_the_youngest_gives_way(scheduling: str) -> None:
    blocks = BlockManager(2, 12, 12, watermark=0.0)
    scheduler = new_scheduler(blocks, scheduling=scheduling, preemption_mode="swap")
    for name in ("old", "young"):
        scheduler.add_group(new_group(name, 2, 6))
    step(scheduler)
    leave_free(blocks, 0)
    assert scheduler.schedule().preempted == [("young", "swap")]


def test_nobody_comes_back_in_a_step_that_preempts() -> None:
    """Unified: a chunk of the victim would fit into what it has left, and it waits all the same."""
    blocks = BlockManager(2, 12, watermark=0.0)
    scheduler = new_scheduler(blocks, preemption_mode="recompute", long_prefill_token_threshold=3)
    for name, prompt_len in (("old", 1), ("young", 6)):
        scheduler.add_group(new_group(name, prompt_len, 6))
    step(scheduler)
    step(scheduler)
    leave_free(blocks, 0)
    output = scheduler.schedule()
    assert output.preempted == [("young", "recompute")] and blocks.num_free_gpu_blocks == 2
    assert [entry.group.request_id for entry in output.scheduled] == ["old"]


def test_sequences_that_have_ended_need_no_room() -> None:
    """One of two samples has ended, so the newcomer's two samples fit into three places."""
    scheduler = new_scheduler(BlockManager(2, 40), max_num_seqs=3)
    scheduler.add_group(new_group("r", 3, 9, n=2))
    step(scheduler)
    scheduler.add_group(new_group("pair", 3, 9, n=2))
    assert len(step(scheduler)) == 2
    scheduler.finish_sequence(1, "stop", "word")
    assert [entry.group.request_id for entry in scheduler.schedule().scheduled] == ["r", "pair"]
