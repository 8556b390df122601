"""The step of today: one token budget for everything (vLLM V1; beyond the paper's 4.5).

There is no prompt phase and no decoding phase. Every sequence has some tokens that are not yet in
the KV cache: many after it arrived, one after each step that drew a token. A step spends a budget
of tokens on catching up, running groups first, so that decoding never waits for prompts; a long
prompt is computed in chunks, with what the others leave of the budget.

1. Running groups, in order, each as far as the budget goes. Who lacks blocks takes them from the
   last running group, in the end from itself. Victims come after all that is scheduled already, so
   nothing scheduled is ever taken back.
2. If nobody was preempted, swapped groups come back, while the first of them fits.
3. If nobody was preempted and nobody is swapped out, waiting groups are admitted, while the first
   of them fits. Here the prefix cache is asked: its hits need not be computed. A sequence that
   comes back after a preemption takes only blocks that it would compute to the same bits, so that
   its answer does not tell of the preemption.

Nobody is passed over in 2 and 3: a small request does not overtake a large one at the head.

4. If nobody was preempted, what is left of budget and blocks goes to drafts (see `speculation`).

>>> from types import SimpleNamespace
>>> from reference.scheduler_config import SchedulerConfig
>>> from reference.sequence import SequenceStatus
>>> params = SimpleNamespace(n=1, best_of=None, max_tokens=4)
>>> state = SchedulerState(BlockManager(4, 10), SchedulerConfig(2, 6, 32))
>>> for i, prompt in enumerate(([1] * 4, [2] * 7)):
...     group = SequenceGroup(f"r{i}", prompt, params)
...     group.leader.seq_id = i
...     state.enter(group, SequenceStatus.WAITING)
>>> [(entry.seq.seq_id, entry.start, entry.num_tokens, entry.num_samples)
...     for entry in schedule_unified(state).scheduled]           # a budget of 6: a whole, a chunk
[(0, 0, 4, 1), (1, 0, 2, 0)]
"""

from reference.blocks import BlockManager
from reference.scheduler_state import SchedulerOutput, SchedulerState
from reference.sequence import Sequence, SequenceGroup
from reference.speculation import plan_drafts

Chunk = tuple[Sequence, int]


def schedule_unified(state: SchedulerState) -> SchedulerOutput:
    """Plan one step, and take the blocks for it."""
    output = SchedulerOutput()
    _advance_running(state, output)
    if not output.preempted:
        _resume_swapped(state, output)
        if not state.swapped:
            _admit_waiting(state, output)
    plan_drafts(state, output)
    return output


def _budget_left(state: SchedulerState, output: SchedulerOutput) -> int:
    return state.config.max_num_batched_tokens - output.num_batched_tokens


def _chunk(state: SchedulerState, num_uncomputed: int, budget: int) -> int:
    """How many of a sequence's tokens to compute now; all or 0 if prompts are not chunked."""
    if not state.config.chunks_prompts:
        return num_uncomputed if num_uncomputed <= budget else 0
    threshold = state.config.long_prefill_token_threshold or num_uncomputed
    return min(num_uncomputed, budget, threshold)


def _plan_chunks(
    state: SchedulerState, group: SequenceGroup, output: SchedulerOutput
) -> list[Chunk]:
    """What each sequence of the group can compute with the budget left, if that is anything."""
    budget = _budget_left(state, output)
    chunks = []
    for seq in group.schedulable:
        num_tokens = _chunk(state, seq.num_uncomputed_tokens, budget)
        if num_tokens > 0:
            chunks.append((seq, num_tokens))
            budget -= num_tokens
    return chunks


def _advance_running(state: SchedulerState, output: SchedulerOutput) -> None:
    """1. Running groups; `state.running` shrinks from its end while we walk it."""
    position = 0
    while position < len(state.running):
        group = state.running[position]
        chunks = _plan_chunks(state, group, output)
        need = sum(
            state.blocks.blocks_needed(
                seq.seq_id, seq.num_computed_tokens, seq.num_computed_tokens + num_tokens
            )
            for seq, num_tokens in chunks
        )
        while need > state.blocks.num_free_gpu_blocks:
            if state.preempt(output) is group:
                return
        for seq, num_tokens in chunks:
            state.schedule_tokens(group, seq, num_tokens, output)
        position += 1


def _resume_swapped(state: SchedulerState, output: SchedulerOutput) -> None:
    """2. Swapped groups, while the first one, with room to grow by a block each, fits."""
    while state.swapped and _budget_left(state, output) > 0:
        group = state.swapped[0]
        chunks = _plan_chunks(state, group, output)
        room_to_grow = _room_to_grow(state.blocks, group, chunks)
        seq_ids = [seq.seq_id for seq in group.unfinished]
        if not state.has_room_for(group) or not state.blocks.can_swap_in(seq_ids, room_to_grow):
            return
        state.swap_in(group, output)
        for seq, num_tokens in chunks:
            state.schedule_tokens(group, seq, num_tokens, output)


def _room_to_grow(blocks: BlockManager, group: SequenceGroup, chunks: list[Chunk]) -> int:
    """Blocks that the next tokens of a swapped group may take: at least one a sequence."""
    num_tokens = dict(chunks)
    room = 0
    for seq in group.schedulable:
        end = seq.num_computed_tokens + num_tokens.get(seq, 0)
        new_blocks = blocks.num_blocks_for(end) - len(blocks.block_table(seq.seq_id))
        room += max(1, new_blocks)
    return room


def _admit_waiting(state: SchedulerState, output: SchedulerOutput) -> None:
    """3. Waiting groups, while the first one fits and the watermark stays free."""
    blocks = state.blocks
    while state.waiting and _budget_left(state, output) > 0:
        group = state.waiting[0]
        leader = group.leader
        hits: list[int] = []
        if group.reads_cache:
            own_prompt = leader.prompt_len if leader.lost_blocks else None
            contents = group.contents(leader.token_ids)
            hits = blocks.cached_blocks(contents, group.salt, own_prompt)
        num_cached = len(hits) * blocks.block_size
        num_uncached = len(leader.token_ids) - num_cached
        num_tokens = _chunk(state, num_uncached, _budget_left(state, output))
        revived = sum(1 for block in hits if blocks.ref_count(block) == 0)
        need = blocks.num_blocks_for(num_cached + num_tokens) - len(hits) + revived
        fits = blocks.num_free_gpu_blocks - need >= blocks.watermark_blocks
        if not state.has_room_for(group) or num_tokens == 0 or not fits:
            return
        state.waiting.remove(group)
        leader.num_computed_tokens = num_cached
        if group.num_cached_tokens == -1:
            group.num_cached_tokens = num_cached
        state.start(group, output)
        state.schedule_tokens(group, leader, num_tokens, output, cached=hits)
        state.attach(group)
