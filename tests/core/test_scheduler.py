"""I15, I19, I20, I22, I23 in cases worked out by hand; the pair tests cover them at random."""

import logging
from typing import Any

import pytest

from jax_engine.core import Scheduler, SequenceStatus
from tests.core.build import TOKEN, make_group, make_scheduler, occupy, step, tokens_for
from tests.support.integrity import check_integrity

MODES = ["unified", "sosp", "sosp-mixed"]


def run_until(scheduler: Scheduler, done: Any, limit: int = 200) -> list[Any]:
    """Steps until `done(output)`; all outputs. I20: no step is empty on the way."""
    outputs = []
    while not outputs or not done(outputs[-1]):
        assert len(outputs) < limit, "I20: no end"
        outputs.append(step(scheduler))
        assert outputs[-1].scheduled, "I20: an empty step"
        check_integrity(scheduler.block_manager)
    return outputs


def crowd(scheduling: str, mode: str | None, cpu: int = 16, n: int = 1) -> Scheduler:
    """Three requests that fit one by one, and not together; 8 tokens of output each."""
    scheduler = make_scheduler(12, cpu, scheduling=scheduling, preemption_mode=mode)
    for i in range(3):
        scheduler.add_group(make_group(f"r{i}", 4, n=n, max_tokens=8 if n == 1 else 6))
    return scheduler


@pytest.mark.parametrize("scheduling", MODES)
@pytest.mark.parametrize(("mode", "n"), [("recompute", 1), ("recompute", 2), ("swap", 2)])
def test_i19_preemption_keeps_tokens_and_order(scheduling: str, mode: str, n: int) -> None:
    scheduler = crowd(scheduling, mode, n=n)
    groups = list(scheduler.waiting)
    preempted = run_until(scheduler, lambda out: out.preempted)[-1].preempted
    assert preempted[0] == ("r2", mode)  # the youngest
    victim = groups[2]
    queue = scheduler.waiting if mode == "recompute" else scheduler.swapped
    assert queue[0] is victim
    status = SequenceStatus.WAITING if mode == "recompute" else SequenceStatus.SWAPPED
    assert {seq.status for seq in victim.seqs} == {status}
    for seq in victim.seqs:
        assert seq.output_token_ids == [TOKEN] * seq.output_len and seq.output_len > 0
        assert seq.finish_reason is None
        assert seq.num_computed_tokens == (0 if mode == "recompute" else len(seq.token_ids) - 1)
    run_until(scheduler, lambda _: not scheduler.has_unfinished())
    assert scheduler.num_preemptions[mode] > 0  # type: ignore[index]
    for group in groups:
        assert [seq.output_len for seq in group.seqs] == [8 if n == 1 else 6] * n
        assert {seq.finish_reason for seq in group.seqs} == {"length"}
    assert scheduler.block_manager.num_used_gpu_blocks == 0, "I9"


@pytest.mark.parametrize("scheduling", MODES)
def test_a_full_cpu_pool_falls_back_to_recomputing(scheduling: str) -> None:
    scheduler = crowd(scheduling, "swap", cpu=1)
    run_until(scheduler, lambda _: not scheduler.has_unfinished())
    assert scheduler.num_preemptions["recompute"] > 0 == scheduler.num_preemptions["swap"]


@pytest.mark.parametrize("scheduling", MODES)
def test_by_default_forked_groups_swap_and_others_recompute(scheduling: str) -> None:
    scheduler = crowd(scheduling, None, n=2)
    run_until(scheduler, lambda _: not scheduler.has_unfinished())
    assert scheduler.num_preemptions["swap"] > 0 == scheduler.num_preemptions["recompute"]
    scheduler = crowd(scheduling, None)
    run_until(scheduler, lambda _: not scheduler.has_unfinished())
    assert scheduler.num_preemptions["recompute"] > 0 == scheduler.num_preemptions["swap"]


@pytest.mark.parametrize("scheduling", MODES)
def test_i15_swaps_go_one_way_in_a_step(scheduling: str) -> None:
    scheduler = crowd(scheduling, "swap", n=2)
    outputs = run_until(scheduler, lambda _: not scheduler.has_unfinished())
    assert any(out.blocks_to_swap_in for out in outputs)
    assert not any(out.blocks_to_swap_in and out.blocks_to_swap_out for out in outputs)


@pytest.mark.parametrize("scheduling", MODES)
def test_i20_bound_when_everything_preempts(scheduling: str) -> None:
    """20 requests over a pool for little more than one: each step yields a token of the oldest."""
    scheduler = make_scheduler(9, 2, scheduling=scheduling, max_model_len=16)
    for i in range(20):
        scheduler.add_group(make_group(f"r{i}", 3, n=1 + i % 2, max_tokens=6, arrival=i % 3))
    outputs = run_until(scheduler, lambda _: not scheduler.has_unfinished(), limit=20 * 2 * 9)
    assert len(outputs) >= 20
    assert scheduler.block_manager.num_free_cpu_blocks == 2


@pytest.mark.parametrize("state", ["waiting", "mid-chunk", "running", "swapped", "rebuilding"])
def test_i22_abort_frees_exactly_that_group(state: str) -> None:
    mode = "recompute" if state == "rebuilding" else "swap"
    scheduler = make_scheduler(12, max_num_batched_tokens=8, preemption_mode=mode)
    for i in range(3):
        scheduler.add_group(make_group(f"r{i}", 4, n=2, max_tokens=6))
    victim = scheduler.groups["r2"]
    reached = {
        "waiting": lambda: victim in scheduler.waiting,
        "mid-chunk": lambda: 0 < victim.seqs[0].num_computed_tokens < 4,
        "running": lambda: victim.forked and victim in scheduler.running,
        "swapped": lambda: victim in scheduler.swapped,
        "rebuilding": lambda: victim.num_unattached > 0,
    }[state]
    if state == "mid-chunk":
        scheduler.abort("r1")
        scheduler.add_group(make_group("r1", 3, arrival=-1.0))
    while not reached():
        step(scheduler)
    blocks = scheduler.block_manager
    others = {seq.seq_id for name in ("r0", "r1") for seq in scheduler.groups[name].seqs}
    assert scheduler.abort("r2") is True
    assert not scheduler.abort("r2") and not scheduler.abort("unknown")
    check_integrity(blocks)
    assert set(blocks.tables) <= others
    assert all(seq.finish_reason == "abort" for seq in victim.seqs)
    run_until(scheduler, lambda _: not scheduler.has_unfinished())
    assert blocks.num_used_gpu_blocks == 0


def test_i22_abort_between_schedule_and_update() -> None:
    scheduler = make_scheduler()
    for name in "ab":
        scheduler.add_group(make_group(name))
    output = scheduler.schedule()
    scheduler.abort("a")
    assert scheduler.update(tokens_for(output)) == []
    assert output.scheduled[0].seq.output_len == 0
    assert output.scheduled[1].seq.output_len == 1
    assert scheduler.update({}) == []  # nothing is taken note of twice
    assert output.scheduled[1].seq.num_computed_tokens == 4


def test_i23_chunks_join_up_to_the_prompt_less_the_hit() -> None:
    scheduler = make_scheduler(caching=True, max_num_batched_tokens=3)
    scheduler.add_group(make_group("a", 8, max_tokens=1))
    run_until(scheduler, lambda _: not scheduler.has_unfinished())
    group = make_group("b", [*range(100, 106), 1, 2, 3, 4], max_tokens=1)
    scheduler.add_group(group)
    items = []
    while scheduler.has_unfinished():
        items += step(scheduler).scheduled
    assert [(item.start, item.num_tokens, item.num_samples) for item in items] == [
        (6, 3, 0),
        (9, 1, 1),
    ]
    assert group.num_cached_tokens == 6


def test_long_prompts_leave_budget_to_others() -> None:
    scheduler = make_scheduler(40, long_prefill_token_threshold=4)
    scheduler.add_group(make_group("long", 12))
    scheduler.add_group(make_group("short", 3))
    chunks = [(item.group.request_id, item.num_tokens) for item in step(scheduler).scheduled]
    assert chunks == [("long", 4), ("short", 3)]


def test_decodes_beyond_the_budget_wait() -> None:
    """Oldest first, also where each has room in its last block."""
    scheduler = make_scheduler(block_size=4, max_num_batched_tokens=2)
    scheduler.add_group(make_group("two", 1, n=2, max_tokens=3))
    scheduler.add_group(make_group("one", 1, max_tokens=3))
    steps = [[item.group.request_id for item in step(scheduler).scheduled] for _ in range(4)]
    assert steps == [["two", "one"], ["two", "two"], ["two", "two"], ["one"]]


def test_what_is_cached_costs_no_budget() -> None:
    scheduler = make_scheduler(caching=True, max_num_batched_tokens=8)
    scheduler.add_group(make_group("a", 8, max_tokens=1))
    step(scheduler)
    for name in "bc":
        scheduler.add_group(make_group(name, 8, max_tokens=1))
    assert [(item.start, item.num_tokens) for item in step(scheduler).scheduled] == [(6, 2)] * 2


@pytest.mark.parametrize(("taken", "fits"), [(4, True), (5, False)])
def test_free_blocks_that_hold_a_hit_are_not_counted_twice(taken: int, fits: bool) -> None:
    """A prompt of 4 blocks whose first 3 are cached, and free: it takes 4 of 8."""
    scheduler = make_scheduler(8, caching=True)
    scheduler.add_group(make_group("a", 8, max_tokens=1))
    step(scheduler)
    occupy(scheduler.block_manager, taken)
    scheduler.add_group(make_group("b", 8, max_tokens=1))
    assert [item.start for item in step(scheduler).scheduled] == [6] * fits


def test_a_preempted_request_leaves_its_place_to_itself() -> None:
    """Under max_num_seqs: it comes back with its first chunk, though nobody has ended."""
    scheduler = make_scheduler(
        6, max_num_seqs=2, long_prefill_token_threshold=2, preemption_mode="recompute"
    )
    for name, prompt in (("old", 4), ("young", 6)):
        scheduler.add_group(make_group(name, prompt, max_tokens=4))
    while not step(scheduler).preempted:
        pass
    assert [item.group.request_id for item in step(scheduler).scheduled] == ["old", "young"]


def test_without_chunking_prompts_are_computed_whole() -> None:
    scheduler = make_scheduler(40, enable_chunked_prefill=False)
    for i in range(4):
        scheduler.add_group(make_group(f"r{i}", 10))
    assert [item.num_tokens for item in step(scheduler).scheduled] == [10, 10, 10]
    assert [item.num_tokens for item in step(scheduler).scheduled] == [1, 1, 1, 10]


def test_samples_may_end_with_their_first_tokens() -> None:
    scheduler = make_scheduler()
    group = make_group("a", n=3, max_tokens=1)
    scheduler.add_group(group)
    assert scheduler.update(tokens_for(scheduler.schedule())) == [group]
    assert [seq.finish_reason for seq in group.seqs] == ["length"] * 3


def test_stop_strings_end_single_sequences() -> None:
    scheduler = make_scheduler()
    scheduler.add_group(make_group("a", n=2))
    step(scheduler)
    group = scheduler.groups["a"]
    first, second = group.seqs
    assert scheduler.finish_sequence(first, group, "stop", "word") is False
    assert (first.finish_reason, first.stop_reason) == ("stop", "word")
    assert scheduler.finish_sequence(first, group, "stop", "again") is False
    assert (group.reserved, group.unfinished(), scheduler.running) == (1, [second], [group])
    assert scheduler.finish_sequence(second, group, "stop", "word") is True
    assert not scheduler.has_unfinished() and not scheduler.running
    assert scheduler.block_manager.num_used_gpu_blocks == 0


@pytest.mark.parametrize("scheduling", MODES)
def test_a_leader_that_ends_mid_rebuild_hands_over(scheduling: str) -> None:
    scheduler = crowd(scheduling, "recompute", n=2)
    run_until(scheduler, lambda out: out.preempted)
    group = scheduler.waiting[0]
    assert group.num_unattached == 1
    assert not scheduler.finish_sequence(group.leader, group, "stop", "word")
    run_until(scheduler, lambda _: not scheduler.has_unfinished())
    assert [seq.finish_reason for seq in group.seqs] == ["stop", "length"]
    assert group.seqs[0].status is SequenceStatus.FINISHED_STOPPED


def test_every_preemption_is_logged_but_few_are_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="jax_engine.core"):
        scheduler = make_scheduler(12, max_num_seqs=20, preemption_mode="recompute")
        for i in range(8):
            scheduler.add_group(make_group(f"r{i}", 2, max_tokens=10))
        run_until(scheduler, lambda _: not scheduler.has_unfinished())
    count = scheduler.num_preemptions["recompute"]
    assert count > 1 and len(caplog.records) == count
    assert [record.levelno for record in caplog.records] == [logging.WARNING] + [logging.DEBUG] * (
        count - 1
    )
    assert " by recompute (preemption 1)" in caplog.records[0].message
