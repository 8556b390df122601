"""Swap or recompute by what costs less (§7.3), group by group."""

from collections import Counter

import pytest

from jax_engine.core.scheduler_state import cheaper_mode, tokens_to_recompute
from jax_engine.errors import ConfigError
from jax_engine.step import PreemptionCosts
from tests.core.build import make_group, make_scheduler, step

MODES = ["unified", "sosp", "sosp-mixed"]
# A block of 2 tokens, out and in, costs 6; so do 2 tokens at 3 each: recomputing wins a tie.
TIE = PreemptionCosts(3.0, 3.0)
SWAP = PreemptionCosts(2.7, 3.0)


def crowd(costs: PreemptionCosts, scheduling: str = "unified", cpu: int = 16, n: int = 1):
    """Three requests that fit one by one, and not together."""
    scheduler = make_scheduler(
        12, cpu, scheduling=scheduling, preemption_mode="auto", preemption_costs=lambda: costs
    )
    for i in range(3):
        scheduler.add_group(make_group(f"r{i}", 4, n=n, max_tokens=8 if n == 1 else 6))
    return scheduler


def finish(scheduler) -> dict[str, int]:
    for _ in range(200):
        if not scheduler.has_unfinished():
            assert scheduler.block_manager.num_used_gpu_blocks == 0
            return scheduler.num_preemptions
        step(scheduler)
    raise AssertionError("I20: no end")


@pytest.mark.parametrize("scheduling", MODES)
@pytest.mark.parametrize("n", [1, 2])
def test_the_mode_that_costs_less_is_taken(scheduling: str, n: int) -> None:
    swapped = finish(crowd(PreemptionCosts(1e-6, 1.0), scheduling, n=n))
    assert swapped["swap"] > 0 == swapped["recompute"]
    recomputed = finish(crowd(PreemptionCosts(1.0, 1e-6), scheduling, n=n))
    assert recomputed["recompute"] > 0 == recomputed["swap"]


@pytest.mark.parametrize("scheduling", MODES)
@pytest.mark.parametrize("costs", [PreemptionCosts(1e-6, 1.0), PreemptionCosts(1.0, 1e-6)])
def test_each_request_knows_how_often_it_was_preempted(
    scheduling: str, costs: PreemptionCosts
) -> None:
    scheduler = crowd(costs, scheduling)
    groups, counts = list(scheduler.waiting), Counter[str]()
    while scheduler.has_unfinished():
        counts.update([name for name, _ in step(scheduler).preempted])
    assert {group.request_id: group.num_preemptions for group in groups} == {
        "r0": 0, "r1": counts["r1"], "r2": counts["r2"],
    }  # fmt: skip
    assert counts["r2"] > 0


@pytest.mark.parametrize("scheduling", MODES)
@pytest.mark.parametrize("cpu", [0, 1])
def test_without_room_on_the_host_groups_are_recomputed(scheduling: str, cpu: int) -> None:
    """Never an engine that aborts, whatever would be cheaper."""
    counts = finish(crowd(PreemptionCosts(0.0, 1.0), scheduling, cpu=cpu, n=2))
    assert counts["recompute"] > 0 == counts["swap"]


def test_costs_of_one_sequence() -> None:
    """8 computed tokens in 4 blocks of 2: 2 * 4 moves of a block against 8 tokens."""
    scheduler = make_scheduler(12, 12, preemption_mode="auto", preemption_costs=lambda: TIE)
    group = make_group("a", 8)
    scheduler.add_group(group)
    scheduler.schedule()
    assert tokens_to_recompute(group, 2) == 0
    scheduler.update({group.seqs[0].seq_id: [7]})
    assert tokens_to_recompute(group, 2) == 8
    assert cheaper_mode(group, scheduler.block_manager, TIE) == "recompute"
    assert cheaper_mode(group, scheduler.block_manager, SWAP) == "swap"


def test_shared_blocks_count_once() -> None:
    """Two samples of a prompt of 5: 2 full blocks, computed once, and what is behind them."""
    scheduler = make_scheduler(12, 12, preemption_mode="auto", preemption_costs=lambda: TIE)
    group = make_group("a", 5, n=2)
    scheduler.add_group(group)
    step(scheduler)
    assert tokens_to_recompute(group, 2) == 4 + 1 + 1
    # 3 blocks, one of them half full: 2 * 3 against 6
    assert cheaper_mode(group, scheduler.block_manager, TIE) == "recompute"
    assert cheaper_mode(group, scheduler.block_manager, SWAP) == "swap"
    step(scheduler)  # the third block is copied when the first of them writes: 4 blocks, 8 tokens
    assert tokens_to_recompute(group, 2) == 4 + 2 + 2
    assert cheaper_mode(group, scheduler.block_manager, SWAP) == "swap"
    scheduler.finish_sequence(group.seqs[0], group, "stop")
    assert tokens_to_recompute(group, 2) == 6
    assert cheaper_mode(group, scheduler.block_manager, TIE) == "recompute"


def test_a_long_prompt_s_full_blocks_count_once() -> None:
    scheduler = make_scheduler(16, 16, preemption_mode="auto", preemption_costs=lambda: TIE)
    group = make_group("a", 9, n=2)
    scheduler.add_group(group)
    step(scheduler)
    step(scheduler)
    assert tokens_to_recompute(group, 2) == 8 + 2 + 2


def test_who_is_preempted_before_its_prompt_is_shared_again_loses_no_less() -> None:
    """The leader has computed one block of 4 again; its sibling has none, and nothing."""
    scheduler = make_scheduler(16, 16, long_prefill_token_threshold=2)
    group = make_group("a", 9, n=2)
    scheduler.add_group(group)
    while not group.forked:
        step(scheduler)
    scheduler.recompute_all()
    step(scheduler)
    assert tokens_to_recompute(group, 2) == 8
    assert cheaper_mode(group, scheduler.block_manager, TIE) == "swap"


def test_costs_are_asked_for_once_and_only_if_there_is_a_choice() -> None:
    calls: list[int] = []

    def measure() -> PreemptionCosts:
        calls.append(1)
        return SWAP

    for cpu in (0, 16):
        scheduler = make_scheduler(12, cpu, preemption_mode="auto", preemption_costs=measure)
        for i in range(6):
            scheduler.add_group(make_group(f"r{i}", 4, max_tokens=8))
        assert scheduler.preemption_costs is None
        assert sum(finish(scheduler).values()) > 1
        assert scheduler.preemption_costs == (SWAP if cpu else None)
    assert calls == [1]


def test_auto_needs_costs() -> None:
    with pytest.raises(ConfigError, match="preemption_costs"):
        make_scheduler(preemption_mode="auto")
