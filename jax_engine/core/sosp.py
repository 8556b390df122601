"""§4.5 and §5.1, scheduling as published: steps that compute prompts, and steps that decode.

Prompts are computed whole. The separate mode is the published system's (v0.2.0): admit if
possible, else decode. The mixed mode is the paper's: one step decodes, swaps in and admits.
"""

from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.scheduler_state import SchedulerState
from jax_engine.core.sequence import Sequence
from jax_engine.core.sequence_group import SequenceGroup


def schedule(state: SchedulerState, out: SchedulerOutput, *, mixed: bool) -> None:
    """Fills `out` with one step."""
    total = state.limits.max_num_batched_tokens
    budget = continue_rebuild(state, out, total)
    if not out.scheduled:
        if not mixed and not state.swapped:
            budget = admit_waiting(state, out, budget)
        if not out.scheduled:
            budget = decode_running(state, out, budget)
            if not out.preempted:
                budget = resume_swapped(state, out, budget)
                if mixed and not state.swapped:
                    budget = admit_waiting(state, out, budget)
    out.num_batched_tokens = total - budget


def continue_rebuild(state: SchedulerState, out: SchedulerOutput, budget: int) -> int:
    """Goes on to recompute a forked group that did not fit into one step.

    No other group is scheduled until then: there is at most one such group, and it has its blocks.
    """
    group = state.rebuilding
    if group is None:
        return budget
    rest = [seq for seq in group.attached() if len(seq.token_ids) - seq.num_computed_tokens > 1]
    if not rest:
        state.rebuilding = None
    return prefill_whole(rest, group, out, budget)


def prefill_whole(
    seqs: list[Sequence], group: SequenceGroup, out: SchedulerOutput, budget: int
) -> int:
    """Schedules whole sequences, whose blocks are allocated, up to the first over budget."""
    for seq in seqs:
        start = seq.num_computed_tokens
        rest = len(seq.token_ids) - start
        if rest > budget:
            break
        out.scheduled.append(ScheduledSequence(seq, group, start, rest, 1))
        budget -= rest
    return budget


def admit_waiting(state: SchedulerState, out: SchedulerOutput, budget: int) -> int:
    """Admits waiting groups, oldest first, until one does not fit; returns the budget left."""
    manager = state.manager
    while state.waiting:
        group = state.waiting[0]
        if not state.fits(group):
            break
        if group.forked:
            if not out.scheduled:
                budget = rebuild(state, group, out, budget)
            break
        seq = group.leader
        length = len(seq.token_ids)
        need = -(-length // manager.block_size)
        if length > budget or manager.num_free_gpu_blocks - need < manager.watermark_blocks:
            break
        group.num_cached_tokens = 0
        state.run(seq, group, length, out)
        state.start_running(state.waiting, out)
        budget -= length
    return budget


def rebuild(state: SchedulerState, group: SequenceGroup, out: SchedulerOutput, budget: int) -> int:
    """Readmits a forked group to be recomputed: allocates all of it, schedules what fits.

    The leader's prompt blocks are shared at once, since it computes them before any sibling.
    """
    manager = state.manager
    seqs, shared = group.unfinished(), group.prompt_len // manager.block_size
    need = shared
    for seq in seqs:
        need += -(-len(seq.token_ids) // manager.block_size) - shared
    if manager.num_free_gpu_blocks - need < manager.watermark_blocks:
        return budget
    state.start_running(state.waiting, out)
    state.allocate(seqs[0], group, len(seqs[0].token_ids), out)
    state.share_prompt(group)
    for seq in seqs[1:]:
        state.allocate(seq, group, len(seq.token_ids), out)
    state.rebuilding = group
    return prefill_whole(seqs, group, out, budget)


def decode_running(state: SchedulerState, out: SchedulerOutput, budget: int) -> int:
    """Decodes all running groups, preempting younger ones for blocks; returns the budget left."""
    manager, tables, append = state.manager, state.manager.tables, out.scheduled.append
    # A victim is popped from the end of this list, behind the current group.
    for group in state.running:
        seqs = group.seqs if len(group.seqs) == 1 else group.decoding()
        while manager.num_free_gpu_blocks < len(seqs):  # each might need a new block
            if state.preempt_youngest(out) is group:
                return budget
        for seq in seqs:
            length = len(seq.token_ids)
            if length <= tables[seq.seq_id].room:
                append(ScheduledSequence(seq, group, length - 1, 1, 1))
            else:
                state.run(seq, group, length, out)
        budget -= len(seqs)
    return budget


def resume_swapped(state: SchedulerState, out: SchedulerOutput, budget: int) -> int:
    """Swaps groups in while they fit above the watermark, and decodes them; the budget left."""
    manager = state.manager
    while state.swapped:
        group = state.swapped[0]
        seqs = group.unfinished()
        seq_ids = [seq.seq_id for seq in seqs]
        if not (state.fits(group) and manager.can_swap_in(seq_ids, len(seqs))):
            break
        out.blocks_to_swap_in += manager.swap_in(seq_ids)
        state.start_running(state.swapped, out)
        for seq in group.decoding():
            state.run(seq, group, len(seq.token_ids), out)
            budget -= 1
    return budget
