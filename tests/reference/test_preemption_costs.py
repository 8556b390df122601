"""Preemption "auto": what is cheaper, worked out by hand (paper 7.3, Figure 19)."""

from types import SimpleNamespace
from typing import Any

import pytest

from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from reference.scheduler_config import SchedulerConfig
from reference.scheduler_state import SchedulerOutput, cheaper_mode
from tests.reference.test_scheduler_cases import LIMITS, new_group, step


def costs(per_block: float, per_token: float) -> Any:
    return SimpleNamespace(seconds_per_block=per_block, seconds_per_token=per_token)


def preempted(n: int, chosen: Any, num_cpu_blocks: int = 20) -> list[tuple[str, str]]:
    """A prompt of 9 in blocks of 4, then 3 tokens for each of n samples; then it must go.

    One sample has computed 11 tokens in 3 blocks. Three have as many each, the first 8 of them in
    2 blocks that they share, 3 in a block of their own: 8 + 3 * 3 = 17 tokens in 5 blocks.
    """
    blocks = BlockManager(4, 20, num_cpu_blocks)
    scheduler = Scheduler(blocks, **LIMITS, preemption_mode="auto", preemption_costs=chosen)
    scheduler.add_group(new_group("r", 9, 8, n=n))
    for _ in range(3):
        step(scheduler)
    output = SchedulerOutput()
    scheduler._state.preempt(output)
    return output.preempted  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("n", "per_block", "per_token", "mode"),
    [
        (1, 1.0, 6.01 / 11, "swap"),
        (1, 1.0, 5.99 / 11, "recompute"),
        (1, 11.0, 6.0, "recompute"),  # equal: 66 seconds each
        (3, 1.0, 10.01 / 17, "swap"),
        (3, 1.0, 9.99 / 17, "recompute"),
    ],
)
def test_the_cheaper_way_is_taken(n: int, per_block: float, per_token: float, mode: str) -> None:
    assert preempted(n, costs(per_block, per_token)) == [("r", mode)]


def test_without_room_on_the_cpu_there_is_one_way() -> None:
    assert preempted(3, costs(0.0, 1.0), num_cpu_blocks=4) == [("r", "recompute")]


def test_a_sibling_that_has_no_blocks_yet_counts_nothing() -> None:
    """The group is being rebuilt: 2 tokens of the leader count as the 4 that are shared."""
    blocks = BlockManager(2, 20)
    group = new_group("r", 5, 8, n=2)
    group.seqs.append(group.leader.fork(1, 1))
    group.leader.seq_id = 0
    assert blocks.allocate_slots(0, group.leader.token_ids, 0, 2) is not None
    group.leader.num_computed_tokens = 2
    assert cheaper_mode(group, blocks, costs(1.9, 1.0)) == "swap"
    assert cheaper_mode(group, blocks, costs(2.0, 1.0)) == "recompute"


def test_auto_needs_to_know_the_costs() -> None:
    with pytest.raises(ValueError, match="preemption_mode='auto' needs preemption_costs"):
        SchedulerConfig(4, 8, 16, preemption_mode="auto")
