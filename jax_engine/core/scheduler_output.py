"""The decision of one call of `Scheduler.schedule`, which the worker executes.

Order within the step: put adapters into their slots; swap in, swap out, copy; write and attend. A
copy may land in a block that a victim lost in the same step, so swapping out comes before it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from jax_engine.core.sequence import Sequence
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.lora.adapter import Adapter
from jax_engine.modes import PreemptionMode


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
        adapters: (slot, adapter): LoRA adapters that this step puts on the device.
        preempted: (request id, how) in order of preemption.
        num_batched_tokens: T, the tokens of the step.
    """

    scheduled: list[ScheduledSequence] = field(default_factory=list)
    blocks_to_swap_in: list[tuple[int, int]] = field(default_factory=list)
    blocks_to_swap_out: list[tuple[int, int]] = field(default_factory=list)
    blocks_to_copy: list[tuple[int, int]] = field(default_factory=list)
    adapters: list[tuple[int, Adapter]] = field(default_factory=list)
    preempted: list[tuple[str, PreemptionMode]] = field(default_factory=list)
    num_batched_tokens: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do: no token to compute, and no block or adapter to move."""
        moves = self.blocks_to_swap_in, self.blocks_to_swap_out, self.blocks_to_copy
        return not (self.scheduled or self.adapters or any(moves))
