"""What is refused, with which numbers, and what happens if it is not (the hangs of 2.5)."""

import copy
from typing import Any

import pytest

from reference.admission import AdmissionError
from reference.blocks import BlockManager
from tests.reference.test_scheduler_cases import new_group, new_scheduler, step


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens", "beams", "field", "need", "limit"),
    [
        (0, 4, 0, "prompt_len", 0, 1),
        (32, 4, 0, "prompt_len", 32, 31),
        (3, 4, 9, "best_of", 9, 8),
        (17, 2, 0, "GPU blocks", 11, 10),  # 9 blocks, 1 of head-room, 1 of watermark
        (4, 6, 2, "GPU blocks", 11, 10),  # 2 shared, 2 x 3 of their own, 2, 1
        (3, None, 0, "GPU blocks", 18, 10),
    ],
)
def test_what_is_refused(
    prompt_len: int, max_tokens: int | None, beams: int, field: str, need: int, limit: int
) -> None:
    """I21: need > limit, for one sample or for all beams, and no trace is left."""
    scheduler = new_scheduler(BlockManager(2, 10, watermark=0.1))
    group = new_group("r", prompt_len, max_tokens, max(1, beams))
    vars(group.params).update(use_beam_search=beams > 0)
    with pytest.raises(AdmissionError) as caught:
        scheduler.add_group(group)
    assert (caught.value.field, caught.value.need, caught.value.limit) == (field, need, limit)
    assert not scheduler.has_unfinished() and group.leader.seq_id == -1


def test_a_prompt_that_is_pooled_may_fill_the_context() -> None:
    """It draws no token: the one that ends it is never seen, and never fed."""
    scheduler = new_scheduler(BlockManager(2, 20))
    too_long, fits = new_group("long", 33, 1), new_group("fits", 32, 1)
    for group in (too_long, fits):
        vars(group.params).update(pooling=object())
    with pytest.raises(AdmissionError) as caught:
        scheduler.add_group(too_long)
    assert (caught.value.field, caught.value.need, caught.value.limit) == ("prompt_len", 33, 32)
    scheduler.add_group(fits)
    while scheduler.has_unfinished():
        assert step(scheduler)
    assert fits.seqs[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens", "n", "part_size"),
    [
        (4, 4, 2, 2),  # 2 shared, 2 x 2 of their own, 2, 1: 9 of 10 blocks
        (4, 6, 2, 1),  # 11 blocks for both, 7 for one
        (4, 6, 3, 1),
        (2, 1, 3, 3),
        (1, 1, 20, 4),  # 2 blocks each, and the watermark
    ],
)
def test_so_many_samples_run_at_a_time_as_the_rule_admits(
    prompt_len: int, max_tokens: int, n: int, part_size: int
) -> None:
    """The rule of 2.5: the most of them whose need is not above the limit."""
    scheduler = new_scheduler(BlockManager(2, 10, watermark=0.1))
    group = new_group("r", prompt_len, max_tokens, n)
    scheduler.add_group(group)
    assert scheduler.waiting == [group] and group.part_size == part_size
    while scheduler.has_unfinished():
        assert step(scheduler)
    assert [seq.index for seq in group.seqs] == list(range(n))


def test_parts_come_one_after_the_other_in_the_place_of_their_request() -> None:
    """Five samples, two at a time: of the later request one step comes before each next part."""
    scheduler = new_scheduler(BlockManager(2, 40), max_num_seqs=2)
    scheduler.add_group(new_group("first", 3, 2, n=5))
    scheduler.add_group(new_group("later", 2, 3))
    first, later = scheduler.groups.values()
    assert step(scheduler) == [(0, 0, 3)]
    assert step(scheduler) == [(0, 3, 1), (2, 3, 1)]
    assert not first.forked and first.leader.index == 2 and first.num_reserved == 2
    assert step(scheduler) == [(3, 0, 3)]
    step(scheduler)
    assert first.leader.index == 4 and first.num_reserved == 1  # the last part is the rest
    assert step(scheduler) == [(5, 0, 3), (1, 0, 2)]
    assert step(scheduler) == [(5, 3, 1), (1, 2, 1)]
    assert scheduler.groups == {"later": later}
    assert [(seq.index, seq.output_len) for seq in first.seqs] == [(i, 2) for i in range(5)]


def test_no_part_comes_after_an_abort() -> None:
    """I22: in the second of three parts; what has ended stays as it is."""
    blocks = BlockManager(2, 40)
    scheduler = new_scheduler(blocks, max_num_seqs=2)
    group = new_group("r", 3, 2, n=5)
    scheduler.add_group(group)
    for _ in range(3):
        step(scheduler)
    assert scheduler.abort("r") and not scheduler.has_unfinished() and not scheduler.running
    assert [seq.finish_reason for seq in group.seqs] == ["length"] * 2 + ["abort"] * 2
    assert blocks.num_free_gpu_blocks == 40 and not scheduler.abort("r")


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
