"""The step of the paper: prompts, or one token for every sequence (4.5; vLLM v0.2.0).

A prompt is computed whole, in a step that holds prompts only; a decoding step adds one token to
every running sequence. Prompts go first, because a full batch makes the best use of the weights:

A. *Prompts*: unless somebody is swapped out (who was there before), admit waiting groups while the
   first one fits into the step and leaves the watermark free. If one was, that is the step.
B. *Decoding*: one token for every sequence of every running group, in order. Each might need a new
   block, for growth or for copy on write; who lacks one takes it from the last running group, in
   the end from itself. (Passed over: a beam that has drawn, and waits for its siblings.)
C. *Swapping in*: if nobody was preempted in B, swapped groups come back while the first one fits.

"sosp-mixed" is the paper's own step, where prompts join the decoding batch: B, C, then A, if nobody
was preempted and nobody is swapped out.

A group that had forked and was recomputed is admitted alone, with blocks for all of its sequences:
its leader computes everything again, the siblings what follows the full blocks of the prompt. What
does not fit into one step is done in the next ones, before anything else (A0).
"""

from reference.scheduler_state import SchedulerOutput, SchedulerState
from reference.sequence import Sequence, SequenceGroup


def schedule_sosp(state: SchedulerState) -> SchedulerOutput:
    """Plan one step, separate ("sosp") or mixed ("sosp-mixed"), and take the blocks for it."""
    output = SchedulerOutput()
    _finish_rebuilding(state, output)
    if output.scheduled:
        return output
    if state.config.scheduling == "sosp":
        if not state.swapped:
            _admit_prompts(state, output)
        if not output.scheduled:
            _decode(state, output)
    else:
        _decode(state, output)
        if not output.preempted and not state.swapped:
            _admit_prompts(state, output)
    return output


def _fits_in_step(state: SchedulerState, output: SchedulerOutput, num_tokens: int) -> bool:
    return output.num_batched_tokens + num_tokens <= state.config.max_num_batched_tokens


def _finish_rebuilding(state: SchedulerState, output: SchedulerOutput) -> None:
    """A0. The sequences of the first group that is not rebuilt yet, while they fit."""
    for group in state.running:
        behind = [seq for seq in group.schedulable if seq.num_uncomputed_tokens > 1]
        for seq in behind:
            if not _fits_in_step(state, output, seq.num_uncomputed_tokens):
                return
            state.schedule_tokens(group, seq, seq.num_uncomputed_tokens, output)
        if behind:
            return


def _admit_prompts(state: SchedulerState, output: SchedulerOutput) -> None:
    """A. Waiting groups, while the first one fits."""
    while state.waiting and state.has_room_for(state.waiting[0]):
        group = state.waiting[0]
        if group.forked and output.scheduled:
            return
        num_tokens = len(group.leader.token_ids)
        need = _blocks_to_rebuild(state, group)
        leaves_watermark = state.blocks.num_free_gpu_blocks - need >= state.blocks.watermark_blocks
        if not _fits_in_step(state, output, num_tokens) or not leaves_watermark:
            return
        state.waiting.remove(group)
        state.start(group, output)
        if group.forked:
            _rebuild(state, group, output)
            return
        state.schedule_tokens(group, group.leader, num_tokens, output)


def _blocks_to_rebuild(state: SchedulerState, group: SequenceGroup) -> int:
    """Blocks for all sequences of a group, the full blocks of the prompt taken once."""
    shared = group.prompt_len // state.blocks.block_size
    num_blocks = [state.blocks.num_blocks_for(len(seq.token_ids)) for seq in group.unfinished]
    return shared + sum(n - shared for n in num_blocks)


def _rebuild(state: SchedulerState, group: SequenceGroup, output: SchedulerOutput) -> None:
    """Take the blocks of a whole group at once; compute what fits, the leader first."""
    leader, *siblings = group.unfinished
    state.schedule_tokens(group, leader, len(leader.token_ids), output)
    state.share_prompt(group)
    for seq in siblings:
        state.blocks.allocate_slots(
            seq.seq_id,
            seq.token_ids,
            seq.num_computed_tokens,
            len(seq.token_ids),
            prompt_len=seq.prompt_len,
        )
    for seq in siblings:
        if not _fits_in_step(state, output, seq.num_uncomputed_tokens):
            return
        state.schedule_tokens(group, seq, seq.num_uncomputed_tokens, output)


def _decode(state: SchedulerState, output: SchedulerOutput) -> None:
    """B and C. One token for every running sequence; then swapped groups, if none had to leave."""
    position = 0
    while position < len(state.running):
        group = state.running[position]
        while state.blocks.num_free_gpu_blocks < len(_behind(group)):
            if state.preempt(output) is group:
                return
        _schedule_one_token_each(state, group, output)
        position += 1
    while state.swapped and not output.preempted:
        group = state.swapped[0]
        seq_ids = [seq.seq_id for seq in group.unfinished]
        can_swap_in = state.blocks.can_swap_in(seq_ids, extra=len(seq_ids))
        if not can_swap_in or not state.has_room_for(group):
            return
        state.swap_in(group, output)
        _schedule_one_token_each(state, group, output)


def _behind(group: SequenceGroup) -> list[Sequence]:
    """The sequences of a group that have something to compute."""
    return [seq for seq in group.unfinished if seq.num_uncomputed_tokens > 0]


def _schedule_one_token_each(
    state: SchedulerState, group: SequenceGroup, output: SchedulerOutput
) -> None:
    for seq in _behind(group):
        state.schedule_tokens(group, seq, 1, output)
