"""The decision of one call of `Scheduler.schedule`, and the `Step` that a worker executes for it.

Order within the step: put adapters into their slots; swap in, swap out, copy; write and attend. A
copy may land in a block that a victim lost in the same step, so swapping out comes before it.

`make_step` converts the decision, which refers to live sequences, to plain data.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from jax_engine.config.engine_config import PreemptionMode
from jax_engine.core.block_manager import BlockView
from jax_engine.core.block_store import Contents
from jax_engine.core.sequence import Sequence
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.lora.adapter import Adapter
from jax_engine.step import Moves, RequestSetup, Row, Samples, Step, Unread


class ScheduledSequence(NamedTuple):
    """A run of positions of one sequence to compute in this step.

    Attributes:
        seq: The sequence; `seq.token_ids[start : start + num_tokens]` are fed to the model, the
            last of them replaced by drafts if there are any.
        group: The sequence's request.
        start: First position.
        num_tokens: Number of positions; at least 1.
        num_samples: Tokens to sample after the last position: 0 for a chunk that does not reach
            the end, `group.num_samples` for a prompt about to fork, else 1.
        drafts: Guesses, fed as the last of the positions. A token is sampled before each, too.
    """

    seq: Sequence
    group: SequenceGroup
    start: int
    num_tokens: int
    num_samples: int
    drafts: tuple[int, ...] = ()

    @property
    def num_draws(self) -> int:
        """Tokens that the step samples for it."""
        return self.num_samples + len(self.drafts)


@dataclass(slots=True)
class SchedulerOutput:
    """One step.

    Attributes:
        scheduled: In the order of the ragged batch.
        blocks_to_swap_in: (cpu block, gpu block) pairs.
        blocks_to_swap_out: (gpu block, cpu block) pairs.
        blocks_to_copy: (source, destination) GPU block pairs, of copy-on-write.
        blocks_to_load: (GPU blocks, their contents), which a store has had; before all other moves.
        adapters: (slot, adapter): LoRA adapters that this step puts on the device.
        preempted: (request id, how) in order of preemption.
        num_batched_tokens: T, the tokens of the step.
    """

    scheduled: list[ScheduledSequence] = field(default_factory=list)
    blocks_to_swap_in: list[tuple[int, int]] = field(default_factory=list)
    blocks_to_swap_out: list[tuple[int, int]] = field(default_factory=list)
    blocks_to_copy: list[tuple[int, int]] = field(default_factory=list)
    blocks_to_load: list[tuple[list[int], Contents]] = field(default_factory=list)
    adapters: list[tuple[int, Adapter]] = field(default_factory=list)
    preempted: list[tuple[str, PreemptionMode]] = field(default_factory=list)
    num_batched_tokens: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do: no token to compute, and no block or adapter to move."""
        moves = self.blocks_to_swap_in, self.blocks_to_swap_out, self.blocks_to_copy
        return not (self.scheduled or self.adapters or any(moves))


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
