"""Which drafts a step takes, what counts of what it draws, and what is given back."""

from typing import Any

import pytest

from jax_engine.core import Scheduler, SequenceGroup
from jax_engine.core.decoding import accepted
from jax_engine.errors import ConfigError
from tests.core.build import make_group, make_scheduler, occupy, tokens_for
from tests.support.beams import beam_params, step_beams

DRAFTS = [11, 12, 13, 14, 15, 16, 17, 18, 19]


@pytest.mark.parametrize(
    ("drafts", "drawn", "kept"),
    [
        ([], [5], []),
        ([6, 7], [5, 6, 7], []),
        ([5, 7], [5, 6, 7], [6]),
        ([5, 6], [5, 6, 7], [6, 7]),
        ([5, 6], [5, 6], [6]),  # the last draw does not count
        ([5, 6], [5], []),
        ([5, 5, 5], [5, 5, 6, 5], [5, 6]),
    ],
)
def test_what_is_drawn_behind_right_drafts_is_accepted(
    drafts: list[int], drawn: list[int], kept: list[int]
) -> None:
    assert accepted(drafts, drawn) == kept


def started(*lengths: int, **changes: Any) -> tuple[Scheduler, list[SequenceGroup]]:
    """Requests with a token of output each, in blocks of 4."""
    settings = {"block_size": 4, "max_draft_tokens": 32} | changes
    scheduler = make_scheduler(16, **settings)
    groups = [make_group(str(i), length, max_tokens=20) for i, length in enumerate(lengths)]
    for group in groups:
        scheduler.add_group(group)
    scheduler.update(tokens_for(scheduler.schedule()))
    return scheduler, groups


def plan(scheduler: Scheduler, drafts: list[int] = DRAFTS) -> list[int]:
    """How many drafts each sequence of the next step takes, all of which have these."""
    ids = [seq.seq_id for group in scheduler.running for seq in group.unfinished()]
    out = scheduler.schedule(dict.fromkeys(ids, drafts))
    for item in out.scheduled:
        assert list(item.drafts) == drafts[: len(item.drafts)]
        assert item.num_draws == item.num_samples + len(item.drafts)
    assert out.num_batched_tokens == sum(item.num_tokens for item in out.scheduled)
    return [len(item.drafts) for item in out.scheduled]


def test_sequences_share_the_drafts_of_a_step() -> None:
    assert plan(started(5, 6, 7, max_draft_tokens=8)[0]) == [2, 2, 2]
    assert plan(started(5, max_draft_tokens=8)[0]) == [8]
    assert plan(started(5, 6, max_draft_tokens=1)[0]) == [0, 0]
    assert plan(started(5, 6, 7)[0], DRAFTS[:3]) == [3, 3, 3]


def test_a_step_draws_no_more_than_a_runner_can() -> None:
    assert plan(started(5, 6, max_samples=7)[0]) == [2, 2]
    assert plan(started(5, 6, max_samples=2)[0]) == [0, 0]
    assert plan(started(5, 6, max_samples=1)[0]) == [0, 0]


def test_a_row_that_draws_nothing_takes_the_room_of_a_draft() -> None:
    """The compiled step has so many rows, and each draft takes one."""
    scheduler, _ = started(2, max_samples=7, long_prefill_token_threshold=2)
    scheduler.add_group(make_group("new", 9))
    assert plan(scheduler) == [5, 0]
    scheduler, _ = started(2, max_samples=7, long_prefill_token_threshold=2)
    scheduler.add_group(make_group("fork", 2, n=4))
    assert plan(scheduler) == [2, 0]


def test_tokens_come_before_drafts() -> None:
    assert plan(started(2, 2, 2, max_num_batched_tokens=9)[0]) == [6, 0, 0]
    scheduler, _ = started(4, max_num_batched_tokens=9)
    scheduler.add_group(make_group("new", 6))
    out = scheduler.schedule({0: DRAFTS})
    assert [(item.num_tokens, len(item.drafts)) for item in out.scheduled] == [(3, 2), (6, 0)]


def test_the_last_token_is_no_draft() -> None:
    """A request of 6 tokens has one, and draws one behind its drafts."""
    scheduler = make_scheduler(16, max_draft_tokens=32)
    scheduler.add_group(make_group("a", 5, max_tokens=6))
    scheduler.update(tokens_for(scheduler.schedule()))
    assert plan(scheduler) == [4]


@pytest.mark.parametrize(("free", "count"), [(2, 2), (3, 2), (4, 6), (5, 9)])
def test_drafts_leave_the_watermark(free: int, count: int) -> None:
    """2 blocks have room for 2 more; 3 blocks are the watermark."""
    scheduler, _ = started(5)
    scheduler.block_manager.watermark_blocks = 3
    occupy(scheduler.block_manager, 14 - free)
    assert plan(scheduler) == [count]


@pytest.mark.parametrize("block_size", [2, 4])
def test_a_block_that_a_request_of_the_same_step_found_is_not_copied(block_size: int) -> None:
    """The last known token fills a block; a request that begins so is admitted in that step.

    The block was shared by the time that drafts got their room: it was copied before anything was
    written, and the other request read a block that nobody wrote (a property found it).
    """
    scheduler, (first,) = started(3, caching=True, block_size=block_size)
    known = list(first.seqs[0].token_ids)
    scheduler.add_group(make_group("second", [*known, 5]))
    out = scheduler.schedule({0: DRAFTS[:3]})
    assert [len(item.drafts) for item in out.scheduled] == [3, 0]
    assert [(item.start, item.num_tokens) for item in out.scheduled] == [(3, 4), (4, 1)]
    assert out.blocks_to_copy == []
    blocks, shared = scheduler.block_manager, 4 // block_size
    assert blocks.block_table(0)[:shared] == blocks.block_table(1)[:shared]


def test_a_step_that_preempts_has_no_drafts() -> None:
    scheduler, groups = started(3, 8, preemption_mode="recompute")
    occupy(scheduler.block_manager, 13)
    out = scheduler.schedule({0: DRAFTS, 1: DRAFTS})
    assert out.preempted == [("1", "recompute")]
    assert [len(item.drafts) for item in out.scheduled] == [0]
    assert groups[1].seqs[0].num_computed_tokens == 0


def test_only_a_decode_has_drafts() -> None:
    """No prompt, no rest of one, no prompt that forks, no beam."""
    scheduler = make_scheduler(16, max_draft_tokens=32, long_prefill_token_threshold=4)
    scheduler.add_group(make_group("prompt", 5))
    for _ in range(2):  # the second time its rest of one token
        assert plan(scheduler) == [0]
        scheduler.update({0: [7]})
    scheduler.add_group(make_group("fork", 3, n=2))
    scheduler.add_group(
        make_group("beams", 3, n=2, use_beam_search=True, length_penalty=1.0, early_stopping=False)
    )
    out = scheduler.schedule(dict.fromkeys(range(3), DRAFTS))
    assert [len(item.drafts) for item in out.scheduled] == [6, 0, 0]


@pytest.mark.parametrize("chunk", [1, 9])
def test_what_is_computed_again_has_no_drafts(chunk: int) -> None:
    scheduler, (group,) = started(5, long_prefill_token_threshold=chunk)
    while not group.seqs[0].output_len:
        scheduler.update(tokens_for(scheduler.schedule()))
    scheduler.recompute_all()
    (item,) = scheduler.schedule({0: DRAFTS}).scheduled
    assert (item.num_tokens, item.drafts) == (min(chunk, 6), ())


def test_drafts_wait_for_the_token_before_them() -> None:
    scheduler, _ = started(5)
    scheduler.schedule()
    scheduler.advance()
    assert plan(scheduler) == [0]


def test_beams_have_no_drafts_nor_have_sequences_without_any() -> None:
    scheduler, _ = started(5, 6)
    beams = make_group("beams", 3, n=2, **beam_params())
    scheduler.add_group(beams)
    step_beams(scheduler)
    assert [seq.output_len for seq in beams.seqs] == [1, 1]
    drafts = {0: [], 2: DRAFTS, 3: DRAFTS}
    assert [len(item.drafts) for item in scheduler.schedule(drafts).scheduled] == [0] * 4


@pytest.mark.parametrize(
    ("drawn", "output", "num_blocks", "num_cached"),
    [
        ([11, 12, 13, 99], [7, 11, 12, 13, 99], 3, 2),
        ([11, 12, 0, 99], [7, 11, 12, 0], 2, 2),
        ([0, 12, 13, 99], [7, 0], 2, 1),
        ([11, 12], [7, 11, 12], 2, 1),
        ([11, 2, 13, 99], [7, 11], 2, 1),
    ],
)
def test_what_counts_is_computed_and_the_rest_given_back(
    drawn: list[int], output: list[int], num_blocks: int, num_cached: int
) -> None:
    """5 tokens of a prompt, one of output, 3 drafts; blocks of 4. Token 2 is the end."""
    scheduler, (group,) = started(5, caching=True)
    (seq,) = group.seqs
    assert plan(scheduler, DRAFTS[:3]) == [3]
    blocks = scheduler.block_manager
    assert len(blocks.block_table(0)) == 3 and blocks.num_cached_blocks == 1
    before = blocks.num_free_gpu_blocks
    assert scheduler.update({0: drawn}) == []
    assert (seq.output_token_ids, seq.num_computed_tokens) == ([7, drawn[0]], 6)
    while scheduler.take_accepted()[0]:
        assert seq.num_computed_tokens == len(seq.token_ids) - 1 or seq.finish_reason
    assert seq.output_token_ids == output + [2] * (2 in drawn)
    assert blocks.num_cached_blocks == num_cached
    if seq.finish_reason:
        assert seq.finish_reason == "stop" and blocks.num_free_gpu_blocks == 16
        return
    assert len(blocks.block_table(0)) == num_blocks
    assert blocks.num_free_gpu_blocks == before + 3 - num_blocks
    assert scheduler.take_accepted() == ([], [])


def test_right_drafts_behind_an_end_do_not_count() -> None:
    scheduler, (group,) = started(5)
    assert plan(scheduler, [11, 2, 13]) == [3]
    scheduler.update({0: [11, 2, 13, 99]})
    taken, ended = scheduler.take_accepted()
    assert (len(taken), ended) == (1, [group])
    assert scheduler.take_accepted() == ([], [])
    assert group.seqs[0].output_token_ids == [7, 11, 2]
    assert scheduler.schedule().is_empty, "nothing is left to be taken"


def test_the_next_step_waits_for_drafts() -> None:
    scheduler, _ = started(5)
    scheduler.schedule()
    assert scheduler.can_advance()
    scheduler.update({0: [7]})
    plan(scheduler)
    assert not scheduler.can_advance()


def test_only_unified_scheduling_has_drafts() -> None:
    with pytest.raises(ConfigError, match=r"speculative_config needs .*'unified', got 'sosp'"):
        make_scheduler(16, scheduling="sosp", max_draft_tokens=1)
