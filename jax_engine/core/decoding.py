"""§4.4, parallel sampling and beam search over shared blocks: applies a step's samples to a group.

Parallel samples share the prompt: they fork once. Beams also share generated tokens: a new beam is
a fork of the beam it continues, and a beam that no new one continues is freed (Figure 9).
"""

import logging
from collections.abc import Sequence as SequenceOf
from typing import Any

from jax_engine.core.beam_search import BeamSearch, Choice, best_choices
from jax_engine.core.sequence import Candidate, Sequence
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.core.state import SchedulerState
from jax_engine.core.stopping import NO_TOKEN

logger = logging.getLogger("jax_engine.core")


def take_samples(
    state: SchedulerState, seq: Sequence, group: SequenceGroup, sampled: SequenceOf[Any]
) -> bool:
    """Takes the tokens of a prompt that forks, or the candidates of a beam.

    Returns:
        Whether the group has ended.
    """
    if group.beam is None:
        return _fork_prompt(state, seq, group, sampled)
    return _take_candidates(state, group.beam, seq, group, sampled)


def _fork_prompt(
    state: SchedulerState, parent: Sequence, group: SequenceGroup, tokens: SequenceOf[int]
) -> bool:
    """Forks the computed prompt into one sequence for each sampled token."""
    for i in range(1, len(tokens)):
        group.seqs.append(state.fork(parent, parent.index + i))
    group.forked, group.samples_per_seq = True, 1
    ended = False
    for seq, token in zip(list(group.part), tokens, strict=True):  # the last may start a new part
        seq.token_ids.append(token)
        stop = group.stop.check(token, len(seq.token_ids))
        if stop is not None:
            ended = state.end(seq, group, *stop)
    return ended


def _take_candidates(
    state: SchedulerState,
    search: BeamSearch,
    seq: Sequence,
    group: SequenceGroup,
    candidates: SequenceOf[Candidate],
) -> bool:
    """Keeps a beam's candidates until all beams of its group have theirs, then selects.

    Returns:
        Whether the search is done. If so, the group's sequences are its hypotheses, or its aborted
        beams if it has none because no token was allowed.
    """
    seq.candidates = candidates
    if any([beam.candidates is None for beam in group.seqs]):
        return False
    live = _select(state, search, group)
    if search.done(live, seq.output_len + 1, group.stop.max_len - group.prompt_len):
        _end(state, search, group)
        return True
    _go_on(state, group, live)
    return False


def _select(state: SchedulerState, search: BeamSearch, group: SequenceGroup) -> list[Choice]:
    """Returns the choices that go on, best first; makes hypotheses of ended ones in the top k."""
    stop = group.stop
    beams = [(seq.cumulative_logprob, seq.candidates or []) for seq in group.seqs]
    length = len(group.seqs[0].token_ids) + 1
    live: list[Choice] = []
    for place, choice in enumerate(best_choices(beams, search.num_candidates)):
        end = stop.check(choice.token, length)
        if end is None:
            live.append(choice)
        elif place < search.width:
            ended = group.seqs[choice.beam].make_child(0)
            ended.num_computed_tokens = 0  # it holds no blocks
            _append(ended, choice)
            state.end(ended, group, *end)
            search.add(choice.value, ended)
    return live[: search.width]


def _go_on(state: SchedulerState, group: SequenceGroup, live: list[Choice]) -> None:
    """Makes `live` the group's beams; forks before it frees, so that no shared block is freed.

    Of the choices that continue one beam, the last takes over its sequence and block table.
    """
    beams: list[Sequence] = list(group.seqs)
    new: list[Sequence] = [beams[choice.beam] for choice in live]
    last = {choice.beam: rank for rank, choice in enumerate(live)}
    # By parent, then by rank: new sequence ids are given in this order
    for rank in sorted(range(len(live)), key=lambda rank: live[rank].beam):
        parent = live[rank].beam
        if rank != last[parent]:
            new[rank] = state.fork(beams[parent], rank)
    for parent, seq in enumerate(beams):
        if parent not in last:
            state.end(seq, group, "abort")
    for rank, (seq, choice) in enumerate(zip(new, live, strict=True)):
        seq.index = rank
        seq.candidates = None
        _append(seq, choice)
    group.seqs = new
    group.forked = group.num_samples > 1


def _append(seq: Sequence, choice: Choice) -> None:
    seq.token_ids.append(choice.token)
    seq.cumulative_logprob = choice.value
    seq.token_logprobs.append((choice.logprob, choice.rank))


def _end(state: SchedulerState, search: BeamSearch, group: SequenceGroup) -> None:
    """Ends the beams and makes the hypotheses, best first, the group's sequences."""
    for seq in group.seqs:
        state.end(seq, group, "abort", None if search.hypotheses else NO_TOKEN)
    if not search.hypotheses:
        logger.warning("request %s is aborted: %s", group.request_id, NO_TOKEN)
        return
    group.seqs = [hypothesis.seq for hypothesis in search.hypotheses]
    for rank, seq in enumerate(group.seqs):
        seq.index = rank
