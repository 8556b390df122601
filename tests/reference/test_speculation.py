"""Speculation in scenarios small enough to follow by hand: guesses, plans, what counts, trims."""

from types import SimpleNamespace
from typing import Any

import pytest

from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from reference.scheduler_config import SchedulerConfig
from reference.scheduler_state import SchedulerOutput
from reference.sequence import Sequence, SequenceGroup
from reference.speculation import accepted, ngram_drafts

LIMITS = {"max_num_seqs": 8, "max_num_batched_tokens": 32, "max_model_len": 32}


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ([1, 2, 3, 1, 2], [3, 1, 2]),
        ([1, 2, 3, 1, 2, 4, 1, 2], [4, 1, 2]),  # the last time counts
        ([1, 2, 7, 2, 8, 1, 2], [7, 2, 8]),  # the longer one counts, though 2 came later before 8
        ([5, 2, 7, 9, 2], [7, 9, 2]),  # of one token, since 9 2 did not come before
        ([7, 7, 7, 7], [7, 7, 7]),  # overlapping the end: it goes on with itself
        ([1, 2, 1, 2, 1, 2], [1, 2, 1]),
        ([1, 2, 3], []),
        ([3], []),
        ([], []),
    ],
)
def test_ngrams_of_one_or_two(tokens: list[int], found: list[int]) -> None:
    assert ngram_drafts(tokens, 3, 1, 2) == found
    assert ngram_drafts(tokens, 1, 1, 2) == found[:1]
    assert ngram_drafts(tokens, 0, 1, 2) == []


def test_no_shorter_end_than_the_shortest_counts() -> None:
    tokens = [5, 2, 7, 9, 2]
    assert [ngram_drafts(tokens, 3, n, 4) for n in (1, 2)] == [[7, 9, 2], []]
    assert ngram_drafts([1, 2, 3, 4, 1, 2, 3], 9, 3, 3) == [4, 1, 2, 3, 4, 1, 2, 3, 4]
    assert ngram_drafts([1, 2, 3, 1, 2, 3], 5, 3, 9) == [1, 2, 3, 1, 2]


@pytest.mark.parametrize(("least", "most"), [(0, 2), (3, 2), (-1, -1)])
def test_lengths_that_make_no_sense_are_refused(least: int, most: int) -> None:
    with pytest.raises(ValueError, match=f"prompt_lookup_min={least} must be .* {most} = prompt_"):
        ngram_drafts([1, 2], 3, least, most)


def test_what_is_drawn_counts_up_to_the_first_wrong_draft() -> None:
    assert accepted([6, 7, 8], [6, 7, 8, 9]) == [6, 7, 8, 9]
    assert accepted([6, 7, 8], [6, 0, 8, 9]) == [6, 0]  # right behind a wrong one is worth nothing
    assert accepted([6, 7, 8], [0, 7, 8, 9]) == [0]
    assert accepted([6, 7, 8], [6, 7]) == [6, 7]  # no more was drawn
    assert accepted([], [6]) == [6]


def new_group(name: str, prompt: Any, max_tokens: int | None = 20, **more: Any) -> SequenceGroup:
    """A request that nothing but its length ends, if `more` says nothing else."""
    params: Any = {"n": 1, "best_of": None, "min_tokens": 0, "stop_token_ids": []}
    params |= {"max_tokens": max_tokens, "ignore_eos": False} | more
    return SequenceGroup(name, list(prompt), SimpleNamespace(**params), eos_token_ids={2})


def running(
    *groups: SequenceGroup, blocks: BlockManager | None = None, **settings: Any
) -> Scheduler:
    """A scheduler in which each sequence of these groups has drawn a 5."""
    blocks = blocks or BlockManager(4, 40, 40)
    scheduler = Scheduler(blocks, **(LIMITS | {"max_draft_tokens": 40} | settings))
    for group in groups:
        scheduler.add_group(group)
    output = scheduler.schedule()
    scheduler.update({e.seq.seq_id: [5] * e.num_samples for e in output.scheduled})
    return scheduler


def sequences(scheduler: Scheduler) -> list[Sequence]:
    groups = (*scheduler.running, *scheduler.swapped, *scheduler.waiting)
    return [seq for group in groups for seq in group.seqs]


def planned(scheduler: Scheduler, *counts: int) -> list[tuple[int, ...]]:
    """The drafts in the next step, where each sequence has so many guesses: 100, 101, ..."""
    for seq, count in zip(sequences(scheduler), counts, strict=True):
        seq.drafts = list(range(100, 100 + count))
    output = scheduler.schedule()
    assert all(seq.drafts == [] for seq in sequences(scheduler))
    for entry in output.scheduled:
        if entry.drafts:
            known = entry.seq.token_ids[entry.start :]
            assert entry.num_tokens == 1 + entry.num_drafts and entry.num_samples == 1
            assert entry.token_ids == [*known, *entry.drafts] and len(known) == 1
            assert list(entry.drafts) == list(range(100, 100 + entry.num_drafts))
    return [entry.drafts for entry in output.scheduled]


def counts(plan: list[tuple[int, ...]]) -> list[int]:
    return [len(drafts) for drafts in plan]


def three(**settings: Any) -> Scheduler:
    return running(*(new_group(f"r{i}", [1, 7, i]) for i in range(3)), **settings)


@pytest.mark.parametrize(
    ("guesses", "max_draft_tokens", "taken"),
    [
        ((5, 5, 5), 7, [2, 2, 2]),  # the odd one is left over
        ((5, 1, 5), 9, [3, 1, 3]),  # a share is nobody else's
        ((5, 0, 5), 7, [3, 0, 3]),  # who has no guesses has no share
        ((5, 5, 5), 2, [0, 0, 0]),
        ((0, 0, 9), 9, [0, 0, 9]),
        ((0, 0, 0), 9, [0, 0, 0]),
        ((5, 5, 5), 0, [0, 0, 0]),
    ],
)
def test_those_who_have_guesses_share_evenly(
    guesses: tuple[int, ...], max_draft_tokens: int, taken: list[int]
) -> None:
    assert counts(planned(three(max_draft_tokens=max_draft_tokens), *guesses)) == taken


def test_the_budget_goes_to_the_first() -> None:
    assert counts(planned(three(max_num_batched_tokens=9), 4, 4, 4)) == [4, 2, 0]
    assert counts(planned(three(max_num_batched_tokens=10), 4, 4, 4)) == [4, 3, 0]


def test_what_waits_is_admitted_before_anybody_drafts() -> None:
    scheduler = three(max_num_batched_tokens=9)
    scheduler.add_group(new_group("new", [1, 2, 3, 4]))
    assert counts(planned(scheduler, 4, 4, 4, 0)) == [2, 0, 0, 0]


@pytest.mark.parametrize(
    ("max_tokens", "max_model_len", "taken"),
    [(20, 32, 9), (6, 32, 4), (2, 32, 0), (20, 10, 5), (None, 10, 5), (3, 6, 1), (4, 5, 0)],
)
def test_the_last_token_is_no_draft(max_tokens: int | None, max_model_len: int, taken: int) -> None:
    """Four tokens are known, three of them the prompt."""
    group = new_group("r", [1, 7, 3], max_tokens)
    assert counts(planned(running(group, max_model_len=max_model_len), 9)) == [taken]


@pytest.mark.parametrize(
    ("free", "watermark_blocks", "taken"),
    [(0, 0, 2), (1, 0, 6), (2, 0, 10), (3, 2, 6), (2, 2, 2), (1, 2, 2)],
)
def test_blocks_for_drafts_leave_the_watermark(
    free: int, watermark_blocks: int, taken: int
) -> None:
    """Six tokens are known, in two blocks of 4; more of them are taken, to leave so many."""
    blocks = BlockManager(4, 20, watermark=watermark_blocks / 20)
    scheduler = running(new_group("r", [1, 7, 3, 4, 6]), blocks=blocks)
    blocks.allocate_slots(99, [1], 0, 4 * (blocks.num_free_gpu_blocks - free))
    assert counts(planned(scheduler, 12)) == [taken]
    assert blocks.num_free_gpu_blocks == free - (taken + 1) // 4


def test_the_first_takes_the_blocks_that_the_next_would_need() -> None:
    scheduler = running(
        *(new_group(f"r{i}", [1, 7, i]) for i in range(2)), blocks=BlockManager(4, 40)
    )
    blocks = scheduler.block_manager
    blocks.allocate_slots(99, [1], 0, 4 * (blocks.num_free_gpu_blocks - 1))
    assert counts(planned(scheduler, 6, 6)) == [4, 0]
    assert blocks.num_free_gpu_blocks == 0


def test_nobody_drafts_behind_a_prompt_or_in_the_middle_of_one() -> None:
    scheduler = Scheduler(
        BlockManager(4, 40), **(LIMITS | {"max_draft_tokens": 9, "long_prefill_token_threshold": 1})
    )
    scheduler.add_group(new_group("short", [1]))
    scheduler.add_group(new_group("long", [1, 7]))
    assert planned(scheduler, 3, 3) == [(), ()]
    scheduler.update({0: [5]})
    assert counts(planned(scheduler, 3, 3)) == [3, 0]


def test_what_is_computed_again_drafts_when_it_is_done() -> None:
    scheduler = running(
        new_group("r", range(3, 8)), max_num_batched_tokens=5, preemption_mode="recompute"
    )
    scheduler._state.preempt(SchedulerOutput())
    assert planned(scheduler, 3) == [()]
    scheduler.update({})
    assert planned(scheduler, 3) == [(100, 101, 102)]


def test_samples_draft_and_beams_do_not() -> None:
    scheduler = running(new_group("r", [1, 7, 3], n=2))
    assert counts(planned(scheduler, 3, 2)) == [3, 2]
    beams = new_group("r", [1, 7, 3], n=2, use_beam_search=True, early_stopping=False)
    scheduler = Scheduler(BlockManager(4, 40), **LIMITS, max_draft_tokens=9)
    scheduler.add_group(beams)
    scheduler.schedule()
    scheduler.update({0: [(5, -1.0), (6, -2.0)]})
    assert planned(scheduler, 3, 3) == [(), ()]


@pytest.mark.parametrize("preemption_mode", ["swap", "recompute"])
def test_a_step_that_preempts_has_no_drafts_and_forgets_them(preemption_mode: str) -> None:
    """Two sequences of 4 tokens in 2 of 3 blocks; both need one more."""
    blocks = BlockManager(4, 4, 4, watermark=0.0)
    groups = [new_group(f"r{i}", [1, 7, 3, i], 8) for i in range(2)]
    scheduler = running(*groups, blocks=blocks, preemption_mode=preemption_mode)
    blocks.allocate_slots(99, [1], 0, 4)
    assert planned(scheduler, 3, 3) == [()]
    assert scheduler.num_preemptions[preemption_mode] == 1  # type: ignore[index]
    scheduler.update({0: [5]})
    assert counts(planned(scheduler, 2, 3)) == [2]  # who is away keeps no guess


def test_only_unified_scheduling_drafts() -> None:
    for scheduling in ("sosp", "sosp-mixed"):
        with pytest.raises(ValueError, match=f"max_draft_tokens=3 needs .*unified.*{scheduling}"):
            Scheduler(
                BlockManager(4, 9),
                **LIMITS,
                scheduling=scheduling,
                max_draft_tokens=3,  # type: ignore[arg-type]
            )
    with pytest.raises(ValueError, match="max_draft_tokens=-1 must be at least 0"):
        SchedulerConfig(4, 8, 16, max_draft_tokens=-1)


def verified(
    group: SequenceGroup, drafts: list[int], drawn: list[int], caching: bool = False
) -> tuple[Sequence, BlockManager]:
    """A sequence of group's prompt and a 5, after a step with these drafts and draws."""
    blocks = BlockManager(2, 20, enable_prefix_caching=caching)
    scheduler = running(group, blocks=blocks)
    seq = group.leader
    seq.drafts = drafts
    scheduler.schedule()
    assert len(blocks.block_table(seq.seq_id)) == blocks.num_blocks_for(
        len(seq.token_ids) + len(drafts)
    )
    scheduler.update({seq.seq_id: drawn})
    return seq, blocks


@pytest.mark.parametrize(
    ("drawn", "output", "num_blocks"),
    [
        ([6, 7, 8, 9], [5, 6, 7, 8, 9], 4),
        ([6, 7, 0, 9], [5, 6, 7, 0], 3),
        ([6, 0, 8, 9], [5, 6, 0], 3),
        ([0, 7, 8, 9], [5, 0], 2),
        ([6], [5, 6], 2),
    ],
)
@pytest.mark.parametrize("caching", [False, True])
def test_what_was_right_is_computed_and_the_rest_given_back(
    drawn: list[int], output: list[int], num_blocks: int, caching: bool
) -> None:
    """A prompt of 3 tokens and a 5, in blocks of 2; drafts 6, 7, 8."""
    seq, blocks = verified(new_group("r", [1, 7, 3]), [6, 7, 8], drawn, caching)
    assert seq.output_token_ids == output and not seq.finished
    computed = seq.token_ids[:-1]
    assert seq.num_computed_tokens == len(computed)
    assert len(blocks.block_table(seq.seq_id)) == num_blocks
    assert blocks.num_free_gpu_blocks == 20 - num_blocks
    prefixes = [tuple(computed[:end]) for end in range(2, len(computed) + 1, 2)]
    assert [one.prefix for one in blocks.prefix_cache.entries] == prefixes * caching
    next_ones = blocks.gpu.free_blocks if caching else blocks.gpu.free_blocks[::-1]
    first = list(range(num_blocks, 4)) if caching else list(range(19 - num_blocks, 15, -1))
    assert next_ones[: 4 - num_blocks] == first


@pytest.mark.parametrize(
    ("more", "drawn", "output", "end"),
    [
        ({}, [6, 2, 8, 9], [5, 6, 2], ("stop", None)),
        ({}, [2, 7, 8, 9], [5, 2], ("stop", None)),
        ({"stop_token_ids": [7]}, [6, 7, 8, 9], [5, 6, 7], ("stop", 7)),
        ({"stop_token_ids": [9]}, [6, 7, 8, 9], [5, 6, 7, 8, 9], ("stop", 9)),
        ({"max_tokens": 5}, [6, 7, 8, 9], [5, 6, 7, 8, 9], ("length", None)),
        ({"stop_token_ids": [6], "min_tokens": 3}, [6, 7, 6, 9], [5, 6, 7, 6], ("stop", 6)),
    ],
)
def test_an_end_among_them_drops_the_rest(
    more: dict[str, Any], drawn: list[int], output: list[int], end: tuple[str, int | None]
) -> None:
    """Drafts are what is drawn, the token that ends it (2, if nothing else) and more included."""
    seq, blocks = verified(new_group("r", [1, 7, 3], **more), drawn[:3], drawn)
    assert seq.output_token_ids == output
    assert (seq.finish_reason, seq.stop_reason) == end
    assert seq.num_computed_tokens == len(seq.token_ids) - 1
    assert blocks.num_free_gpu_blocks == 20


def test_an_abort_takes_the_blocks_of_drafts_as_well() -> None:
    """Between the plan and the update."""
    scheduler = running(new_group("r", [1, 7, 3]))
    assert counts(planned(scheduler, 9)) == [9]
    assert scheduler.abort("r") and scheduler.update({0: [5] * 10}) == []
    assert scheduler.block_manager.num_free_gpu_blocks == 40


def test_blocks_are_found_that_a_verified_draft_has_filled() -> None:
    """A request right after it finds them, if it has the same salt."""
    group = new_group("r", [1, 7, 3])
    group.cache_salt = "a"
    _, blocks = verified(group, [6, 7, 8], [6, 7, 8, 9], caching=True)
    tokens = [1, 7, 3, 5, 6, 7, 8, 9]
    assert len(blocks.cached_blocks(tokens, "a")) == 3
    assert len(blocks.cached_blocks([1, 7, 3, 5, 6, 0, 8, 9], "a")) == 2
    assert blocks.cached_blocks(tokens) == blocks.cached_blocks(tokens, "b") == []


def test_a_hit_on_the_block_before_its_drafts_is_no_reason_to_copy() -> None:
    """A new sequence finds the block that another's last token fills in the same step."""
    blocks = BlockManager(4, 40, enable_prefix_caching=True)
    scheduler = running(new_group("r", [1, 7, 3]), blocks=blocks)
    scheduler.add_group(new_group("finds it", [1, 7, 3, 5, 6]))
    assert counts(planned(scheduler, 3, 0)) == [3, 0]
    (first, second), (found, _) = blocks.block_table(0), blocks.block_table(1)
    assert first == found and blocks.ref_count(first) == 2 and blocks.ref_count(second) == 1


def test_of_two_samples_one_ends_in_its_draft() -> None:
    """The other one goes on with what it has, in its own blocks."""
    scheduler = running(new_group("r", [1, 7, 3], n=2))
    [group] = scheduler.running
    drawn = [6, 2, 8, 9], [6, 7, 8, 9]
    for seq, tokens in zip(group.seqs, drawn, strict=True):
        seq.drafts = tokens[:3]
    scheduler.schedule()
    assert scheduler.update(dict(enumerate(drawn))) == []
    assert [seq.output_token_ids for seq in group.seqs] == [[5, 6, 2], [5, 6, 7, 8, 9]]
    assert [seq.finish_reason for seq in group.seqs] == ["stop", None]
    blocks = scheduler.block_manager
    assert blocks.block_table(0) == [] and len(blocks.block_table(1)) == 2
    assert blocks.num_free_gpu_blocks == 38
