"""§4.4, decoding methods over shared blocks: parallel sampling, beam search, speculative decoding.

Parallel samples share the prompt: they fork once. Beams also share generated tokens: a new beam is
a fork of the beam it continues, and a beam that no new one continues is freed (Figure 9).
`take_samples` applies a step's samples to such a group; `beam_search` chooses among the beams.

In speculative decoding a step draws behind guesses, too, and keeps what a plain run would draw. A
drafted row feeds the last token of its sequence and some drafts behind it, and draws a token behind
each of them. A draw depends on (seed, position) and on the tokens before it. So the draw behind a
draft that was right is the one that a plain run makes there, and is kept. The first draft that was
wrong ends it: what was drawn behind that draft is dropped. (Leviathan et al., arXiv 2211.17192,
accept a wrong draft with some probability instead, which changes the draws.)

Drafts take what a step has left, so they make nobody wait. A sequence gives the blocks of its wrong
drafts back before the next step is planned. Then it holds what it would hold without drafts, and
the admission rule (`admission`) needs no other numbers.
"""

import logging
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from typing import Any

from jax_engine.core.beam_search import BeamSearch, Choice, best_choices
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.scheduler_state import SchedulerState
from jax_engine.core.sequence import NO_TOKEN, Candidate, Sequence
from jax_engine.core.sequence_group import SequenceGroup

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
        _end_search(state, search, group)
        return True
    _continue_beams(state, group, live)
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


def _continue_beams(state: SchedulerState, group: SequenceGroup, live: list[Choice]) -> None:
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


def _end_search(state: SchedulerState, search: BeamSearch, group: SequenceGroup) -> None:
    """Ends the beams and makes the hypotheses, best first, the group's sequences."""
    for seq in group.seqs:
        state.end(seq, group, "abort", NO_TOKEN)  # said only where no hypothesis takes their place
    if not search.hypotheses:
        logger.warning("request %s is aborted: %s", group.request_id, NO_TOKEN)
        return
    group.seqs = [hypothesis.seq for hypothesis in search.hypotheses]
    for rank, seq in enumerate(group.seqs):
        seq.index = rank


type Drafts = Mapping[int, SequenceOf[int]]
"""Guesses for the tokens behind the last one of sequences, by seq_id."""


def add_drafts(
    state: SchedulerState, out: SchedulerOutput, drafts: Drafts, max_draft_tokens: int
) -> None:
    """Appends drafts to the rows of a planned step that only feed the last token of a sequence.

    No step has drafts in which a group was preempted. Rows share `max_draft_tokens` evenly. Each
    takes the first of its drafts: as many as its length, the budget and the free blocks above the
    watermark allow.
    """
    if out.preempted:
        return
    places = [i for i, item in enumerate(out.scheduled) if _may_draft(item, drafts)]
    if not places:
        return
    each = max_draft_tokens // len(places)
    budget = state.limits.max_num_batched_tokens - out.num_batched_tokens
    for place in places:
        item = out.scheduled[place]
        count = min(each, budget, _draft_room(state, item))
        chosen = tuple(drafts[item.seq.seq_id][: max(0, count)])
        if chosen:
            _allocate(state, item, len(chosen))
            num_tokens = 1 + len(chosen)
            out.scheduled[place] = item._replace(num_tokens=num_tokens, drafts=chosen)
            budget -= len(chosen)
            out.num_batched_tokens += len(chosen)


def _allocate(state: SchedulerState, item: ScheduledSequence, count: int) -> None:
    """Makes room for drafts behind the known tokens of a row.

    The block of its last known token is no longer the row's alone: the token may have filled it,
    and a request admitted in this step may have found it in the prefix cache. A copy of it now
    would be written in its place, and the other request would read what nobody has written.
    """
    seq, known = item.seq, len(item.seq.token_ids)
    copies = state.manager.allocate_slots(
        seq.seq_id, seq.token_ids, known, known + count, cache_salt=item.group.cache_salt
    )
    assert copies == [], "drafts were planned without blocks of their own"


def _may_draft(item: ScheduledSequence, drafts: Drafts) -> bool:
    """Whether a row has drafts, and is a decode: it feeds one generated token and draws one."""
    seq, group = item.seq, item.group
    decodes = item.num_tokens == 1 and item.num_samples == 1 and not seq.pending
    return bool(decodes and group.beam is None and seq.output_len and drafts.get(seq.seq_id))


def _draft_room(state: SchedulerState, item: ScheduledSequence) -> int:
    """How many drafts the end of the sequence and the free blocks allow."""
    manager, length = state.manager, len(item.seq.token_ids)
    free = max(0, manager.num_free_gpu_blocks - manager.watermark_blocks)
    blocks = len(manager.tables[item.seq.seq_id].ids) + free
    # All drafts may be right, and one more token is drawn behind the last of them.
    return min(item.group.stop.max_len - length - 1, blocks * manager.block_size - length)


def accepted(drafts: SequenceOf[int], drawn: SequenceOf[int]) -> list[int]:
    """What a drafted row has drawn behind drafts that were right; its first draw is always kept.

    Args:
        drawn: Behind the last token of the sequence, and behind each draft; fewer, if those behind
            them do not count.
    """
    kept = []
    for draft, token, following in zip(drafts, drawn, drawn[1:], strict=False):
        if draft != token:
            break
        kept.append(following)
    return kept
