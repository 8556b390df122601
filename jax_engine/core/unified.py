"""Unified scheduling, newer than the paper: one token budget, no prefill and decode phases.

A sequence has computed some of its tokens; a step computes a chunk of the rest. So prompts, chunks
of prompts, decodes and recomputation are the same thing. Running groups come first, then those
swapped out, then waiting ones; always oldest first, and no group overtakes a blocked one.
"""

from typing import NamedTuple

from jax_engine.core.block_store import Contents, num_blocks
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.scheduler_state import SchedulerState
from jax_engine.core.sequence import Sequence
from jax_engine.core.sequence_group import SequenceGroup


class Share(NamedTuple):
    """What a step takes at most, where others are in flight that should have as much.

    Attributes:
        running: Sequences of running groups. A group is not divided: it may be a few more.
        waiting: Groups that were waiting.
    """

    running: int
    waiting: int


ALL = Share(2**31, 2**31)


def schedule(
    state: SchedulerState, out: SchedulerOutput, share: Share = ALL, *, waits: bool = True
) -> None:
    """Fills `out` with one step.

    Args:
        waits: Whether to wait for blocks of a store if there is nothing else to compute. If not,
            the step may be empty.
    """
    total = state.limits.max_num_batched_tokens
    budget = continue_running(state, out, total, share.running)
    if not out.preempted:
        budget = resume_swapped(state, out, budget)
        if not state.swapped:
            budget = admit_waiting(state, out, budget, share.waiting, waits=waits)
    out.num_batched_tokens = total - budget


def continue_running(state: SchedulerState, out: SchedulerOutput, budget: int, most: int) -> int:
    """Schedules running groups, preempting younger ones for blocks; returns the budget left.

    Args:
        most: As `Share.running`.
    """
    manager, tables, append = state.manager, state.manager.tables, out.scheduled.append
    # A victim is popped from the end of this list, behind the current group: iterating stays valid,
    # and a group that was scheduled is never preempted.
    for group in state.running:
        if budget == 0 or len(out.scheduled) >= most:
            break
        seq = group.seqs[0]
        start, length = seq.num_computed_tokens, len(seq.token_ids) + (seq.pending < 0)
        if len(group.seqs) == 1 and length - start == 1:  # the most common case: a decode
            if length <= tables[seq.seq_id].room:  # ... that fits its last block
                append(ScheduledSequence(seq, group, start, 1, group.samples_per_seq))
                budget -= 1
                continue
            runs = [(seq, length)]
        else:
            runs = plan_chunks(state, group, budget)
        need = sum(
            manager.blocks_needed(seq.seq_id, seq.num_computed_tokens, end) for seq, end in runs
        )
        while need > manager.num_free_gpu_blocks:
            if state.preempt_youngest(out) is group:
                return budget
        budget -= run_chunks(state, group, runs, out)
    return budget


def resume_swapped(state: SchedulerState, out: SchedulerOutput, budget: int) -> int:
    """Swaps groups back in while they fit above the watermark; returns the budget left."""
    manager = state.manager
    while state.swapped and budget > 0:
        group = state.swapped[0]
        if group.in_flight:
            break
        runs = plan_chunks(state, group, budget)
        seqs = group.attached()
        # Head-room of a block per sequence, also for those that this step's budget leaves out
        extra = len(seqs) - len(runs)
        extra += sum(max(1, new_blocks(state, seq, end)) for seq, end in runs)
        seq_ids = [seq.seq_id for seq in seqs]
        if not (state.fits(group) and manager.can_swap_in(seq_ids, extra)):
            break
        out.blocks_to_swap_in += manager.swap_in(seq_ids)
        state.start_running(state.swapped, out)
        budget -= run_chunks(state, group, runs, out)
    return budget


def admit_waiting(
    state: SchedulerState, out: SchedulerOutput, budget: int, most: int, *, waits: bool
) -> int:
    """Admits waiting groups, past their cached and stored prefixes; returns the budget left.

    Args:
        most: As `Share.waiting`.
        waits: As in `schedule`.
    """
    manager, block_size = state.manager, state.manager.block_size
    last = len(state.waiting) - most
    while state.waiting and budget > 0 and len(state.waiting) > last:
        group = state.waiting[0]
        if group.in_flight or not state.fits(group):
            break
        seq = group.leader
        hits: list[int] = []
        loaded: Contents = []
        if group.reads_cache:
            own = seq.prompt_len if seq.is_recomputed else None  # what it had, to the bit
            hits = manager.cached_blocks(seq.token_ids, group.cache_salt, seq.chain, own)
            chain, may_wait = seq.chain, waits and not out.scheduled
            found = manager.stored_blocks(chain, len(hits), seq.prompt_len, waits=may_wait)
            if found is None:
                break
            loaded = found
        num_loaded = num_blocks(loaded)
        cached_tokens = (len(hits) + num_loaded) * block_size
        end = cached_tokens + chunk_size(state, len(seq.token_ids) - cached_tokens, budget)
        if end == cached_tokens:
            break
        need = -(-end // block_size) - len(hits) + manager.num_free_among(hits)
        if manager.num_free_gpu_blocks - need < manager.watermark_blocks:
            break
        seq.num_computed_tokens = cached_tokens
        if group.num_cached_tokens is None:
            group.num_cached_tokens = cached_tokens
            group.num_loaded_tokens = num_loaded * block_size
        state.run(seq, group, end, out, hits, loaded)
        if manager.store is not None:
            manager.store.use(seq.chain[: len(hits) + num_loaded])
        if group.num_unattached:  # recomputed, and the cache may have the prompt
            state.attach(group)
        budget -= end - cached_tokens
        state.start_running(state.waiting, out)
    return budget


def chunk_size(state: SchedulerState, rest: int, budget: int) -> int:
    """How many of the `rest` tokens of a sequence go into this step; 0 for none."""
    limits = state.limits
    chunk = min(rest, budget, limits.long_prefill_token_threshold or rest)
    return chunk if limits.chunked_prefill or chunk == rest else 0


def plan_chunks(
    state: SchedulerState, group: SequenceGroup, budget: int
) -> list[tuple[Sequence, int]]:
    """(sequence, end of its chunk) for each of the group's sequences that gets a share."""
    runs = []
    for seq in group.attached():
        start = seq.num_computed_tokens
        chunk = chunk_size(state, seq.num_tokens - start, budget)
        if chunk:
            runs.append((seq, start + chunk))
            budget -= chunk
    return runs


def run_chunks(
    state: SchedulerState,
    group: SequenceGroup,
    runs: list[tuple[Sequence, int]],
    out: SchedulerOutput,
) -> int:
    """Schedules planned chunks; returns their tokens."""
    tokens = 0
    for seq, end in runs:
        tokens += end - seq.num_computed_tokens
        state.run(seq, group, end, out)
    return tokens


def new_blocks(state: SchedulerState, seq: Sequence, end: int) -> int:
    """Blocks that the sequence's table, GPU or CPU, lacks for `end` tokens."""
    table = state.manager.tables.get(seq.seq_id)
    return -(-end // state.manager.block_size) - (len(table.ids) if table else 0)
