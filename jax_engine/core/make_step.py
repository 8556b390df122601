"""Converts the scheduler's decision to a `Step`: plain data that a worker executes."""

from jax_engine.core.block_view import BlockView
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.step import Moves, RequestSetup, Row, Samples, Step, Unread


def make_step(
    plan: SchedulerOutput,
    blocks: BlockView,
    opened: list[RequestSetup],
    closed: list[int],
    *,
    masked: bool = False,
    unread: Unread | None = None,
) -> Step:
    """The plan as plain data: later changes to sequences and block tables do not affect it.

    Args:
        opened, closed, masked, unread: As in `Step`.
    """
    return Step(
        [_row(item) for item in plan.scheduled],
        _samples(plan),
        blocks.block_table_rows([item.seq.seq_id for item in plan.scheduled]),
        Moves(plan.blocks_to_swap_in, plan.blocks_to_swap_out, plan.blocks_to_copy),
        opened,
        closed,
        masked,
        unread,
        plan.adapters,
    )


def _row(item: ScheduledSequence) -> Row:
    seq, group, start, num_tokens, num_samples, drafts = item
    pending = seq.pending
    if drafts:
        history = [*seq.token_ids, *drafts] if group.needs_history else None
        tokens = [seq.token_ids[start], *drafts]
        return Row(
            seq.seq_id, group.number, start, tokens, history, len(drafts), group.adapter_slot
        )
    if num_tokens == 1:
        tokens = [pending or seq.token_ids[start]]
    else:
        tokens = seq.token_ids[start : start + num_tokens]
        if pending:
            tokens.append(pending)
    history = None
    if group.needs_history and num_samples:
        history = [*seq.token_ids, pending] if pending else list(seq.token_ids)
    return Row(seq.seq_id, group.number, start, tokens, history, 0, group.adapter_slot)


def _samples(plan: SchedulerOutput) -> Samples:
    """All behind the last token of a row: one, or one for each sequence of a fork.

    A row with drafts has one behind each of its tokens.
    """
    tokens: list[int] = []
    indices: list[int] = []
    token = -1
    for seq, _, _, num_tokens, num_samples, drafts in plan.scheduled:
        token += num_tokens
        if drafts:
            tokens += range(token - len(drafts), token + 1)
            indices += [seq.index] * num_tokens
        elif num_samples == 1:  # most rows: as below, and faster
            tokens.append(token)
            indices.append(seq.index)
        else:
            tokens += [token] * num_samples
            indices += range(seq.index, seq.index + num_samples)
    return Samples(tokens, indices)
