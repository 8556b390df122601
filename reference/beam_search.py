"""Beam search: keep the k most probable outputs, word by word (paper 4.4 and Figure 9).

The k *live beams* of a request are the sequences of its group, best first. Each step asks the model
how each of them may go on; of all the ways together, the best become the new beams. So a beam may
have several children, or none: `fork`, `append` and `free`, as often as words are written. Beams
share the blocks of what they have in common, in a pattern that changes with each step.

What each beam draws in a step is not a token but *candidates*, (token, log-probability), best
first. They wait, on the sequence, until all live beams have some (budgets and preemption may
compute one beam before another). Then one selection is made:

1. An *extension* is a beam with one of its candidates; its value is the log-probability of all
   of its output, a sum. The M best count: by value, then by the rank of the beam, then by token id.
   With E tokens that can end an output, M = max(2, 1 + E) * k: whatever ends, k are left to go on.
2. An extension ends as a sequence does, with a token that ends it or with the longest output.
3. Those that end and are among the first k become *hypotheses*, with the score value / length**a,
   where a is `length_penalty`. The k hypotheses of the highest score are kept.
4. The first k that do not end are the new beams.
5. The search is done when there is no new beam (with no hypothesis either, since all tokens were
   forbidden, the request is aborted); or there are k hypotheses, and

   - `early_stopping` is True; or
   - the best beam, at its present length, scores no more than the worst of them
     (`early_stopping` False); or
   - it would score no more even at the length where it scores best, which is the greatest length if
     a > 0 (`early_stopping` "never").

This is the selection of `transformers`, version 5.

Two live beams, k = 2, token 9 ends. The end is the best extension of all, so the first hypothesis;
both beams that go on are children of the first beam:

>>> from types import SimpleNamespace
>>> params = SimpleNamespace(n=2, best_of=None, max_tokens=5, min_tokens=0, stop_token_ids=[],
...     ignore_eos=False, use_beam_search=True, length_penalty=1.0, early_stopping=False)
>>> group = SequenceGroup("r", [0], params, eos_token_ids={9})
>>> first, second = Sequence([0, 4], 1, 0), Sequence([0, 5], 1, 1)
>>> first.cumulative_logprob, first.candidates = -1.0, [(9, -0.5), (6, -1.0), (7, -1.25)]
>>> second.cumulative_logprob, second.candidates = -2.0, [(6, -0.5), (8, -1.0)]
>>> group.seqs = [first, second]
>>> chosen = select(group, max_model_len=100)
>>> [(one.beam.index, one.token_id, one.value) for one in chosen.live]
[(0, 6, -2.0), (0, 7, -2.25)]
>>> [(seq.output_token_ids, seq.cumulative_logprob, seq.score) for seq in chosen.hypotheses]
[([4, 9], -1.5, -0.75)]
>>> chosen.done
False
"""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from reference.blocks import BlockManager
from reference.sequence import (
    FinishReason,
    Sequence,
    SequenceGroup,
    longest_output,
    reason_to_end,
)


@dataclass(frozen=True)
class Extension:
    """A live beam with one more token; `value` is the log-probability of the whole output."""

    beam: Sequence
    token_id: int
    logprob: float
    value: float


@dataclass(frozen=True)
class Selection:
    """What comes after a step: beams to go on with, hypotheses best first, and whether to stop."""

    live: list[Extension]
    hypotheses: list[Sequence]
    done: bool


def end_token_ids(group: SequenceGroup) -> set[int]:
    """The tokens that end an output of this group."""
    eos_token_ids = () if group.params.ignore_eos else group.eos_token_ids
    return {*eos_token_ids, *(group.params.stop_token_ids or ())}


def num_candidates(group: SequenceGroup) -> int:
    """M: how many extensions a selection looks at, so the most that one beam need offer."""
    return max(2, 1 + len(end_token_ids(group))) * group.num_samples


def select(group: SequenceGroup, max_model_len: int) -> Selection:
    """Rules 1 to 5, for a group whose live beams all hold candidates. It changes nothing."""
    extensions = _best_extensions(group)
    longest = longest_output(group, max_model_len)
    length = group.leader.output_len + 1
    ends = [reason_to_end(one.token_id, length, group, max_model_len) for one in extensions]

    width = group.num_samples
    new = [
        _hypothesis(group, one, *end)
        for one, end in zip(extensions[:width], ends, strict=False)
        if end is not None
    ]
    by_score = sorted([*group.hypotheses, *new], key=lambda seq: -seq.score)
    hypotheses = by_score[:width]
    live = [one for one, end in zip(extensions, ends, strict=True) if end is None]
    return Selection(live[:width], hypotheses, _is_done(group, live, hypotheses, length, longest))


def _best_extensions(group: SequenceGroup) -> list[Extension]:
    """Rule 1."""
    extensions = [
        Extension(beam, token_id, logprob, beam.cumulative_logprob + logprob)
        for beam in group.unfinished
        for token_id, logprob in beam.candidates or ()
    ]
    extensions.sort(key=lambda one: (-one.value, one.beam.index, one.token_id))
    return extensions[: num_candidates(group)]


def _hypothesis(
    group: SequenceGroup, one: Extension, reason: FinishReason, stop_reason: int | None
) -> Sequence:
    """Rule 3. It holds no blocks, so it needs no id: its tokens are final."""
    seq = Sequence(
        [*one.beam.token_ids, one.token_id],
        group.prompt_len,
        logprobs=[*one.beam.logprobs, one.logprob],
        cumulative_logprob=one.value,
    )
    seq.score = _score(group, one.value, seq.output_len)
    seq.finish(reason, stop_reason)
    return seq


def _score(group: SequenceGroup, value: float, length: int) -> float:
    return float(value / length ** getattr(group.params, "length_penalty", 1.0))


def _is_done(
    group: SequenceGroup,
    live: SequenceOf[Extension],
    hypotheses: SequenceOf[Sequence],
    length: int,
    longest: int,
) -> bool:
    """Rule 5."""
    if not live or len(hypotheses) < group.num_samples:
        return not live
    early_stopping = getattr(group.params, "early_stopping", False)
    if early_stopping is True:
        return True
    if early_stopping == "never" and getattr(group.params, "length_penalty", 1.0) > 0:
        length = longest
    return _score(group, live[0].value, length) <= hypotheses[-1].score


def advance(
    group: SequenceGroup,
    live: SequenceOf[Extension],
    blocks: BlockManager,
    seq_ids: Iterator[int],
) -> None:
    """Let the selected extensions be the beams of the group: fork, free, append.

    Of a beam's children the last one is the beam itself, its sequence and its table; the others are
    forks. All forks come before the first free, so a block that goes on being used is never free.
    """
    beams = group.unfinished
    at_rank: dict[int, Sequence] = {}
    for beam in beams:
        ranks = [rank for rank, one in enumerate(live) if one.beam is beam]
        for rank in ranks[:-1]:
            at_rank[rank] = beam.fork(rank, next(seq_ids))
            blocks.fork(beam.seq_id, at_rank[rank].seq_id)
        if ranks:
            at_rank[ranks[-1]] = beam
    for beam in beams:
        if beam not in at_rank.values():
            blocks.free(beam.seq_id)
    group.seqs = [at_rank[rank] for rank in range(len(live))]
    for rank, (seq, one) in enumerate(zip(group.seqs, live, strict=True)):
        seq.index = rank
        seq.append(one.token_id)
        seq.logprobs.append(one.logprob)
        seq.cumulative_logprob = one.value
        seq.candidates = None
    group.forked = group.num_samples > 1
