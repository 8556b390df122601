"""The selection of beam search, by hand: rules, ends, when to stop, and Figure 9 of the paper."""

from types import SimpleNamespace
from typing import Any

import pytest

from reference.beam_search import num_candidates, select
from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from reference.sequence import Sequence, SequenceGroup, longest_output

EOS = 9


def new_group(width: int, prompt_len: int = 1, **more: Any) -> SequenceGroup:
    fields = {
        "n": width, "best_of": None, "max_tokens": 10, "min_tokens": 0, "stop_token_ids": [],
        "ignore_eos": False, "use_beam_search": True, "length_penalty": 1.0,
        "early_stopping": False,
    }  # fmt: skip
    params: Any = SimpleNamespace(**(fields | more))
    return SequenceGroup("r", list(range(prompt_len)), params, eos_token_ids={EOS})


def beam(rank: int, output: list[int], value: float, candidates: list[Any]) -> Sequence:
    return Sequence([0, *output], 1, rank, cumulative_logprob=value, candidates=candidates)


def hypothesis(output: list[int], value: float, score: float) -> Sequence:
    return Sequence([0, *output], 1, cumulative_logprob=value, score=score)


def test_extensions_are_ordered_by_value_then_rank_then_token() -> None:
    group = new_group(3)
    group.seqs = [
        beam(0, [4], -1.0, [(7, -1.0), (5, -2.0), (6, -2.0)]),
        beam(1, [5], -1.5, [(3, -0.5), (8, -0.5)]),
    ]
    chosen = select(group, 100)
    assert [(one.beam.index, one.token_id) for one in chosen.live] == [(0, 7), (1, 3), (1, 8)]
    assert not chosen.hypotheses and not chosen.done


def test_an_end_counts_only_among_the_first_k_and_more_candidates_make_up_for_it() -> None:
    """Both beams' best is the end; a third end, of rank 2, is nothing to a width of 2."""
    group = new_group(2, stop_token_ids=[8], length_penalty=0.0)
    assert num_candidates(group) == 6
    group.seqs = [
        beam(0, [4], -1.0, [(EOS, -0.1), (8, -0.3), (5, -3.0)]),
        beam(1, [5], -1.1, [(8, -0.1), (EOS, -0.4), (6, -3.0)]),
    ]
    chosen = select(group, 100)
    ended = [(s.output_token_ids, s.finish_reason, s.stop_reason) for s in chosen.hypotheses]
    assert ended == [([4, EOS], "stop", None), ([5, 8], "stop", 8)]
    assert [(one.beam.index, one.token_id) for one in chosen.live] == [(0, 5), (1, 6)]
    assert chosen.done  # neither -4.0 nor -4.1 can beat -1.2


def test_hypotheses_compete_and_the_older_one_comes_first_if_they_are_equal() -> None:
    group = new_group(2, length_penalty=0.0)
    group.hypotheses = [hypothesis([1], -1.0, -1.0), hypothesis([2], -3.0, -3.0)]
    group.seqs = [beam(0, [4], -0.5, [(EOS, -0.5), (6, -0.5)]), beam(1, [5], -2.5, [(7, -9.0)])]
    chosen = select(group, 100)
    assert [seq.output_token_ids for seq in chosen.hypotheses] == [[1], [4, EOS]]
    assert [one.token_id for one in chosen.live] == [6, 7]


def test_at_the_longest_everything_ends_and_what_does_not_end_by_itself_by_length() -> None:
    """The maximum length of the model counts as well as max_tokens."""
    group = new_group(2, max_tokens=2)
    assert [longest_output(group, n) for n in (100, 3, 2)] == [2, 2, 1]
    assert longest_output(new_group(2, max_tokens=None), 7) == 6
    group.seqs = [beam(0, [4], -1.0, [(EOS, -0.1), (5, -0.2), (6, -0.3)])]
    chosen = select(group, 100)
    assert [seq.output_token_ids for seq in chosen.hypotheses] == [[4, EOS], [4, 5]]
    assert [seq.finish_reason for seq in chosen.hypotheses] == ["stop", "length"]
    assert chosen.done and not chosen.live


def test_an_end_of_sequence_that_is_ignored_goes_on_unless_it_is_a_stop_token_too() -> None:
    group = new_group(1, ignore_eos=True)
    group.seqs = [beam(0, [4], -1.0, [(EOS, -0.1), (5, -0.2)])]
    assert [one.token_id for one in select(group, 100).live] == [EOS]
    group.params.stop_token_ids = [EOS]  # type: ignore[misc]
    assert [seq.stop_reason for seq in select(group, 100).hypotheses] == [EOS]


def test_fewer_beams_than_the_width_are_all_there_are() -> None:
    """No token but the end is possible: one hypothesis, though two were asked for."""
    group = new_group(2)
    group.seqs = [beam(0, [4], -1.0, [(EOS, -0.1)])]
    chosen = select(group, 100)
    assert chosen.done and [seq.output_token_ids for seq in chosen.hypotheses] == [[4, EOS]]


@pytest.mark.parametrize(
    ("early_stopping", "length_penalty", "worst", "done"),
    [
        (False, 1.0, -0.59, True),  # -1.2 over 2 tokens is -0.6
        (False, 1.0, -0.6, True),  # no better is enough
        (False, 1.0, -0.61, False),
        (True, 1.0, -0.61, True),
        ("never", 1.0, -0.11, True),  # -1.2 over 10 tokens is -0.12
        ("never", 1.0, -0.13, False),
        ("never", 0.0, -1.2, True),
        ("never", 0.0, -1.21, False),
        ("never", -1.0, -2.39, True),  # longer is worse: -1.2 times 2, not times 10
        ("never", -1.0, -2.41, False),
    ],
)
def test_when_it_is_done(
    early_stopping: bool | str, length_penalty: float, worst: float, done: bool
) -> None:
    """The two hypotheses there are stay; the best beam gets to -1.2 with its second token of 10."""
    group = new_group(2, early_stopping=early_stopping, length_penalty=length_penalty)
    group.hypotheses = [hypothesis([1], 0.0, 0.0), hypothesis([2], worst, worst)]
    group.seqs = [beam(0, [4], -1.0, [(6, -0.2), (7, -0.5)])]
    assert select(group, 100).done == done
    group.hypotheses.pop()
    assert not select(group, 100).done


def step(scheduler: Scheduler, ways: dict[tuple[int, ...], dict[int, float]]) -> list[list[int]]:
    """One step; what may follow an output is said by the caller. The outputs that it follows."""
    output = scheduler.schedule()
    sampled = {
        entry.seq.seq_id: sorted(
            ways[tuple(entry.seq.output_token_ids)].items(), key=lambda way: -way[1]
        )
        for entry in output.scheduled
        if entry.num_samples
    }
    assert all(entry.num_samples <= 1 for entry in output.scheduled)
    outputs = [entry.seq.output_token_ids for entry in output.scheduled]
    scheduler.update(sampled)
    return outputs


def test_figure_9() -> None:
    """k = 4: of four beams over blocks 0 to 8, the second and the third have two children each."""
    blocks = BlockManager(1, 24, enable_prefix_caching=True)  # blocks in order: 0, 1, 2, ..
    scheduler = Scheduler(blocks, max_num_seqs=4, max_num_batched_tokens=8, max_model_len=8)
    group = new_group(4, max_tokens=5)
    scheduler.add_group(group)
    step(scheduler, {(): {1: -1.0, 2: -1.1}})
    step(scheduler, {(1,): {1: 0.0}, (2,): {1: 0.0}})
    step(scheduler, {(1, 1): {1: -1.0, 2: -1.1, 3: -1.2}, (2, 1): {1: -2.0}})
    nothing = {5: -9.0, 6: -9.0}
    ways = {
        (1, 1, 1): nothing,
        (1, 1, 2): {1: -0.1, 2: -0.2},
        (1, 1, 3): {3: -0.3, 4: -0.4},
        (2, 1, 1): nothing,
    }

    def tables() -> list[list[int]]:
        return [blocks.block_table(seq.seq_id) for seq in group.seqs]

    scheduler.schedule()
    assert tables() == [[0, 1, 3, 5], [0, 1, 3, 6], [0, 1, 3, 7], [0, 2, 4, 8]]
    assert [blocks.ref_count(b) for b in range(9)] == [4, 3, 1, 3, 1, 1, 1, 1, 1]
    scheduler.update(
        {seq.seq_id: [*ways[tuple(seq.output_token_ids)].items()] for seq in group.seqs}
    )
    assert [b for b in range(9) if blocks.ref_count(b) == 0] == [2, 4, 5, 8]
    assert tables() == [[0, 1, 3, 6], [0, 1, 3, 6], [0, 1, 3, 7], [0, 1, 3, 7]]
    scheduler.schedule()
    assert [table[:3] for table in tables()] == [[0, 1, 3]] * 4
    assert [table[3:] for table in tables()] == [[6, 9], [6, 10], [7, 11], [7, 12]]
    assert scheduler.abort("r") and blocks.num_free_gpu_blocks == 24
    assert [seq.finish_reason for seq in group.seqs] == ["abort"] * 4


def test_the_last_child_keeps_the_sequence_and_the_others_are_forks() -> None:
    blocks = BlockManager(4, 24)
    scheduler = Scheduler(blocks, max_num_seqs=4, max_num_batched_tokens=8, max_model_len=8)
    group = new_group(3)
    scheduler.add_group(group)
    step(scheduler, {(): {1: -1.0, 2: -1.1, 3: -1.2}})
    assert [seq.seq_id for seq in group.seqs] == [1, 2, 0] and group.forked
    step(scheduler, {(1,): {1: -9.0}, (2,): {1: -0.1, 2: -0.3}, (3,): {1: -0.1}})
    assert [seq.output_token_ids for seq in group.seqs] == [[2, 1], [3, 1], [2, 2]]
    assert [(seq.seq_id, seq.index) for seq in group.seqs] == [(3, 0), (0, 1), (2, 2)]
    assert [seq.cumulative_logprob for seq in group.seqs] == [-1.1 - 0.1, -1.2 - 0.1, -1.1 - 0.3]
    assert [seq.logprobs for seq in group.seqs] == [[-1.1, -0.1], [-1.2, -0.1], [-1.1, -0.3]]
    assert group.num_reserved == 3


BRANCHING = {1: -1.0, 2: -1.1, 3: -1.2}


class Always(dict[tuple[int, ...], dict[int, float]]):
    """The same three ways after every output."""

    def __missing__(self, output: tuple[int, ...]) -> dict[int, float]:
        return BRANCHING


def beams_after_preemption(mode: str) -> tuple[list[list[int]], Scheduler]:
    """Three beams with a budget of two tokens; preempted while the first two hold candidates."""
    blocks = BlockManager(2, 20, 20)
    scheduler = Scheduler(
        blocks,
        max_num_seqs=4,
        max_num_batched_tokens=2,
        max_model_len=8,
        preemption_mode=mode,  # type: ignore[arg-type]
    )
    group = new_group(3, prompt_len=2)
    scheduler.add_group(group)
    assert step(scheduler, Always()) == [[]]
    assert step(scheduler, Always()) == [[1], [2]]
    assert [len(seq.candidates or ()) for seq in group.seqs] == [3, 3, 0]
    scheduler._state.preempt(type(scheduler._last)())
    return [seq.candidates or [] for seq in group.seqs], scheduler  # type: ignore[misc]


def test_beams_wait_for_each_other_and_swapping_keeps_what_they_hold() -> None:
    held, scheduler = beams_after_preemption("swap")
    assert [len(candidates) for candidates in held] == [3, 3, 0]
    assert step(scheduler, Always()) == [[3]]
    [group] = scheduler.running
    assert [seq.output_token_ids for seq in group.seqs] == [[1, 1], [1, 2], [2, 1]]
    assert [seq.candidates for seq in group.seqs] == [None, None, None]


def test_recomputing_drops_what_they_hold() -> None:
    held, scheduler = beams_after_preemption("recompute")
    assert held == [[], [], []]
    assert step(scheduler, Always()) == [[1]]  # the prompt; and then the rest of each beam
    assert step(scheduler, Always()) == [[1], [2]]
    assert step(scheduler, Always()) == [[3]]
    [group] = scheduler.running
    assert [seq.output_token_ids for seq in group.seqs] == [[1, 1], [1, 2], [2, 1]]


@pytest.mark.parametrize("scheduling", ["sosp", "sosp-mixed"])
def test_a_beam_that_waits_is_passed_over_in_a_decoding_step(scheduling: Any) -> None:
    """Rebuilt in parts: two beams in the first step, for a budget of 8; the third has one token to
    compute, so that is a decoding step, in which the others have nothing to do."""
    scheduler = Scheduler(
        BlockManager(2, 24),
        scheduling=scheduling,
        max_num_seqs=4,
        max_num_batched_tokens=8,
        max_model_len=8,
        preemption_mode="recompute",
    )
    group = new_group(3, prompt_len=6)
    scheduler.add_group(group)
    step(scheduler, Always())
    scheduler._state.preempt(type(scheduler._last)())
    assert step(scheduler, Always()) == [[1], [2]]
    assert [len(seq.candidates or ()) for seq in group.seqs] == [3, 3, 0]
    assert step(scheduler, Always()) == [[3]]
    assert [seq.output_token_ids for seq in group.seqs] == [[1, 1], [1, 2], [2, 1]]
    assert not scheduler.has_unfinished()


def test_beams_that_may_draw_nothing_are_aborted() -> None:
    """All tokens are forbidden: there is nothing to wait for, and the blocks are given back."""
    scheduler = Scheduler(
        BlockManager(2, 20), max_num_seqs=4, max_num_batched_tokens=8, max_model_len=8
    )
    scheduler.add_group(new_group(2))
    output = scheduler.schedule()
    [group] = scheduler.update({output.scheduled[0].seq.seq_id: []})
    [seq] = group.seqs
    assert (seq.finish_reason, seq.stop_reason) == ("abort", "its constraints allow no token")
    assert not scheduler.has_unfinished()
    assert scheduler.block_manager.num_free_gpu_blocks == 20
