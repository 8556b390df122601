"""Speculative decoding: a step draws behind guesses, too, and keeps what a plain run would draw.

A drafted row feeds the last token of its sequence and some drafts behind it, and draws a token
behind each of them. A draw depends on (seed, position) and on the tokens before it. So the draw
behind a draft that was right is the one that a plain run makes there, and is kept. The first draft
that was wrong ends it: what was drawn behind that draft is dropped. (Leviathan et al., arXiv
2211.17192, accept a wrong draft with some probability instead, which changes the draws.)

Drafts take what a step has left, so they make nobody wait. A sequence gives the blocks of its wrong
drafts back before the next step is planned. Then it holds what it would hold without drafts, and
the admission rule (`admission`) needs no other numbers.
"""

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf

from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.state import SchedulerState

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
        count = min(each, budget, _room(state, item))
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


def _room(state: SchedulerState, item: ScheduledSequence) -> int:
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
