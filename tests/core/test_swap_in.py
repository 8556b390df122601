"""How much must be free before a swapped group comes back: its blocks, head-room, the watermark."""

import pytest

from jax_engine.core import BlockManager, Scheduler
from tests.core.build import make_group, make_scheduler, occupy, step


def swapped_group(scheduling: str, num_samples: int, budget: int) -> tuple[Scheduler, int]:
    """A forked group that a foreign user of the pool has pushed out; and the blocks it had."""
    blocks = BlockManager(4, 40, 40, watermark=0.1)
    scheduler = Scheduler(
        blocks,
        max_num_seqs=8,
        max_num_batched_tokens=budget,
        max_model_len=24,
        scheduling=scheduling,  # type: ignore[arg-type]
    )
    scheduler.add_group(make_group("a", 5, n=num_samples, max_tokens=10))
    while not scheduler.groups["a"].forked:
        step(scheduler)
    step(scheduler)  # each has its own copy of the prompt's last block, with room in it
    occupy(blocks, blocks.num_free_gpu_blocks)
    while not scheduler.swapped:  # these steps may be empty: the scheduler knows no foreign user
        step(scheduler)
    return scheduler, 1 + num_samples


@pytest.mark.parametrize(
    ("scheduling", "budget"), [("unified", 24), ("unified", 2), ("sosp", 24), ("sosp-mixed", 24)]
)
def test_swap_in_leaves_head_room_for_each_sequence(scheduling: str, budget: int) -> None:
    """One block a sequence, even for those whose block has room or that the budget leaves out."""
    scheduler, own = swapped_group(scheduling, 3, budget)
    blocks = scheduler.block_manager
    least = own + 3 + blocks.watermark_blocks
    occupy(blocks, blocks.num_gpu_blocks - (least - 1))
    assert not step(scheduler).blocks_to_swap_in
    occupy(blocks, blocks.num_gpu_blocks - least)
    output = step(scheduler)
    assert len(output.blocks_to_swap_in) == own
    assert output.num_batched_tokens == min(3, budget)


@pytest.mark.parametrize(("budget", "comes"), [(2, False), (3, True)])
def test_who_is_swapped_in_gets_a_token_at_least(budget: int, comes: bool) -> None:
    """The older group takes 2."""
    scheduler = make_scheduler(max_num_batched_tokens=budget, preemption_mode="swap")
    scheduler.add_group(make_group("older", 3, n=2))
    scheduler.add_group(make_group("younger", 8))
    while not scheduler.groups["younger"].seqs[0].num_computed_tokens:
        step(scheduler)
    blocks = scheduler.block_manager
    occupy(blocks, blocks.num_free_gpu_blocks)
    while not scheduler.swapped:
        step(scheduler)
    occupy(blocks, 0)
    assert step(scheduler).num_batched_tokens == budget
    assert [group.request_id for group in scheduler.swapped] == ["younger"] * (not comes)


@pytest.mark.parametrize(("free", "comes"), [(5, False), (6, True)])
def test_the_next_chunk_of_a_prompt_has_room_when_it_comes_back(free: int, comes: bool) -> None:
    """3 blocks that it had, and 3 for as many tokens again."""
    scheduler = make_scheduler(long_prefill_token_threshold=6, preemption_mode="swap")
    scheduler.add_group(make_group("a", 14))
    step(scheduler)
    blocks = scheduler.block_manager
    occupy(blocks, blocks.num_free_gpu_blocks)
    step(scheduler)
    occupy(blocks, blocks.num_gpu_blocks - free)
    assert step(scheduler).num_batched_tokens == 6 * comes


@pytest.mark.parametrize("scheduling", ["unified", "sosp", "sosp-mixed"])
def test_several_groups_go_and_come_back_in_one_step(scheduling: str) -> None:
    """Four sequences need a block each: two groups with two blocks give theirs."""
    scheduler = make_scheduler(scheduling=scheduling, preemption_mode="swap")
    for name, n in (("a", 4), ("b", 1), ("c", 1)):
        scheduler.add_group(make_group(name, 4, n=n, max_tokens=4))
    step(scheduler)
    blocks = scheduler.block_manager
    occupy(blocks, blocks.num_free_gpu_blocks)
    out = step(scheduler)
    assert out.preempted == [("c", "swap"), ("b", "swap")] and len(out.blocks_to_swap_out) == 4
    occupy(blocks, 0)
    assert len(step(scheduler).blocks_to_swap_in) == 4


@pytest.mark.parametrize("scheduling", ["unified", "sosp", "sosp-mixed"])
def test_nobody_is_admitted_past_a_swapped_group(scheduling: str) -> None:
    """In the separate mode the step that brings it back admits nobody either: it decodes."""
    scheduler, own = swapped_group(scheduling, 3, 24)
    scheduler.add_group(make_group("new", 2, max_tokens=1))
    blocks = scheduler.block_manager
    occupy(blocks, blocks.num_gpu_blocks - own - 3 - blocks.watermark_blocks + 1)
    assert not step(scheduler).scheduled
    occupy(blocks, 0)
    admitted = [step(scheduler).scheduled[-1].group.request_id for _ in range(2)]
    assert admitted == (["a", "new"] if scheduling == "sosp" else ["new", "a"])
