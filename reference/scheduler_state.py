"""The three queues, and what can be done to a group in them (paper 4.5).

Every unfinished group is in one queue: *waiting* (no blocks), *running* (its blocks are on the
GPU) or *swapped* (on the CPU). Each is kept in the order of service: first come, first served, or
by priority first. Memory is taken from the end of that order: who is last to be served is first to
be preempted, so nobody overtakes. While a group with an adapter runs, the adapter lies in a slot of
the device (`adapter_slots`).

All sequences of a group go together ("all-or-nothing", because they share blocks and each needs all
of its own). There are two ways to take their blocks away:

- *swap*: copy them to CPU memory, and back later. Sharing survives.
- *recompute*: drop them. The tokens are known, so the prompt and the output so far can be computed
  again, as one prompt. For a group that has forked, the sharing has to be built again, too: its
  leader is computed first, and as soon as the full blocks of the prompt are there, the siblings are
  *attached*: they share these, and compute the rest for themselves.

Which one is faster depends on the machine and on the victim (7.3, Figure 19): with "auto", what
each would cost is worked out.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from reference.adapter_slots import Adapter, AdapterSlots
from reference.blocks import BlockManager, BlockPair
from reference.scheduler_config import PreemptionCosts, PreemptionMode, SchedulerConfig
from reference.sequence import Sequence, SequenceGroup, SequenceStatus


@dataclass(frozen=True)
class ScheduledSequence:
    """Compute positions start .. start+num_tokens-1 of `seq`, then draw `num_samples` tokens.

    A beam has one sample, whatever its width: a list of candidates. With `drafts`, guesses that
    stand at the last of these positions, a token more is drawn behind each of them.
    """

    seq: Sequence
    group: SequenceGroup
    start: int
    num_tokens: int
    num_samples: int
    drafts: tuple[int, ...] = ()

    @property
    def num_drafts(self) -> int:
        return len(self.drafts)

    @property
    def token_ids(self) -> list[int]:
        """What is fed to the model: tokens of the sequence, then the drafts."""
        tokens = [*self.seq.token_ids, *self.drafts]
        return [tokens[position] for position in range(self.start, self.start + self.num_tokens)]


@dataclass
class SchedulerOutput:
    """One step: what to compute, and what to do to blocks before (pairs of source, destination).

    The order is part of it: swap in, swap out, copy, write, attend. A block that a victim just left
    may be the destination of a copy, so copying before swapping out would overwrite it. Before all
    of that, adapters are brought to their slots (pairs of slot, adapter).
    """

    scheduled: list[ScheduledSequence] = field(default_factory=list)
    blocks_to_swap_in: list[BlockPair] = field(default_factory=list)
    blocks_to_swap_out: list[BlockPair] = field(default_factory=list)
    blocks_to_copy: list[BlockPair] = field(default_factory=list)
    adapters: list[tuple[int, Adapter]] = field(default_factory=list)
    preempted: list[tuple[str, PreemptionMode]] = field(default_factory=list)

    @property
    def num_batched_tokens(self) -> int:
        return sum(entry.num_tokens for entry in self.scheduled)


class SchedulerState:
    """The queues, the blocks and the limits; the modes of scheduling are functions of this."""

    def __init__(self, blocks: BlockManager, config: SchedulerConfig) -> None:
        self.blocks = blocks
        self.config = config
        self.slots = AdapterSlots(config.max_loras)
        self.waiting: list[SequenceGroup] = []
        self.running: list[SequenceGroup] = []
        self.swapped: list[SequenceGroup] = []
        self.num_preemptions: dict[PreemptionMode, int] = {"recompute": 0, "swap": 0}

    def key(self, group: SequenceGroup) -> tuple[float, ...]:
        """Groups are served in the order of this, smallest first."""
        arrival = (group.arrival_time, group.add_index)
        return arrival if self.config.policy == "fcfs" else (group.priority, *arrival)

    def enter(self, group: SequenceGroup, status: SequenceStatus) -> None:
        """Put a group into the queue of this status, at its place."""
        queues = {
            SequenceStatus.WAITING: self.waiting,
            SequenceStatus.RUNNING: self.running,
            SequenceStatus.SWAPPED: self.swapped,
        }
        group.set_status(status)
        queues[status].append(group)
        queues[status].sort(key=self.key)

    def start(self, group: SequenceGroup, output: SchedulerOutput) -> None:
        """Let a group run that was taken out of its queue; the caller made sure of room for it."""
        if group.adapter is not None:
            group.adapter_slot, is_new = self.slots.load(group.adapter, self._adapters_in_use())
            if is_new:
                output.adapters.append((group.adapter_slot, group.adapter))
        self.enter(group, SequenceStatus.RUNNING)

    def leave(self, group: SequenceGroup) -> None:
        """Take a group out of the queue it is in."""
        if group in self.running:
            self._leave_slot(group)
        for queue in (self.waiting, self.running, self.swapped):
            if group in queue:
                queue.remove(group)

    def _leave_slot(self, group: SequenceGroup) -> None:
        self.slots.note_left(group.adapter)
        group.adapter_slot = 0

    def _adapters_in_use(self) -> list[Adapter | None]:
        return [group.adapter for group in self.running]

    def has_room_for(self, group: SequenceGroup) -> bool:
        """Do max_num_seqs and the slots allow this group to run, too?"""
        reserved = sum(other.num_reserved for other in self.running)
        if reserved + group.num_reserved > self.config.max_num_seqs:
            return False
        return self.slots.has_room_for(group.adapter, self._adapters_in_use())

    def schedule_tokens(
        self,
        group: SequenceGroup,
        seq: Sequence,
        num_tokens: int,
        output: SchedulerOutput,
        cached: SequenceOf[int] = (),
    ) -> None:
        """Compute the next tokens of a sequence in this step; the caller made sure of blocks."""
        start = seq.num_computed_tokens
        copies = self.blocks.allocate_slots(
            seq.seq_id,
            group.contents(seq.token_ids),
            start,
            start + num_tokens,
            cached=cached,
            cache_salt=group.salt,
            prompt_len=seq.prompt_len,
        )
        assert copies is not None, "a step was planned without the blocks for it"
        output.blocks_to_copy += copies
        num_samples = 0
        if start + num_tokens == len(seq.token_ids):
            num_samples = 1 if group.forked or group.beam_search else group.num_samples_now
        output.scheduled.append(ScheduledSequence(seq, group, start, num_tokens, num_samples))

    def preempt(self, output: SchedulerOutput) -> SequenceGroup:
        """Take the blocks of the last running group, and return it."""
        group = self.running.pop()
        self._leave_slot(group)
        seq_ids = [seq.seq_id for seq in group.unfinished]
        mode = self._preemption_mode(group)
        if mode == "swap" and self.blocks.can_swap_out(seq_ids):
            output.blocks_to_swap_out += self.blocks.swap_out(seq_ids)
            self.enter(group, SequenceStatus.SWAPPED)
        else:
            mode = "recompute"
            for seq in group.unfinished:
                self.blocks.free(seq.seq_id)
                seq.num_computed_tokens = 0
                seq.lost_blocks = True
                seq.attached = False
                seq.candidates = None
            self.enter(group, SequenceStatus.WAITING)
        output.preempted.append((group.request_id, mode))
        self.num_preemptions[mode] += 1
        return group

    def _preemption_mode(self, group: SequenceGroup) -> PreemptionMode:
        """How its blocks should be taken, if the CPU has room for them."""
        mode, costs = self.config.preemption_mode, self.config.preemption_costs
        if mode is None:
            return "swap" if group.forked else "recompute"
        if mode == "auto":
            assert costs is not None, "the configuration was not checked"
            return cheaper_mode(group, self.blocks, costs)
        return mode

    def swap_in(self, group: SequenceGroup, output: SchedulerOutput) -> None:
        """Bring the blocks of a swapped group back; the caller made sure of room for them."""
        self.swapped.remove(group)
        output.blocks_to_swap_in += self.blocks.swap_in([seq.seq_id for seq in group.unfinished])
        self.start(group, output)

    def attach(self, group: SequenceGroup) -> None:
        """If a group is being rebuilt and its leader has computed the prompt: share it."""
        num_shared = group.prompt_len // self.blocks.block_size
        if group.leader.num_computed_tokens >= num_shared * self.blocks.block_size:
            self.share_prompt(group)

    def share_prompt(self, group: SequenceGroup) -> None:
        """Give the siblings that lost their blocks the leader's full blocks of the prompt."""
        leader = group.leader
        leader.attached = True
        num_shared = group.prompt_len // self.blocks.block_size
        for seq in group.unfinished:
            if not seq.attached:
                self.blocks.fork(leader.seq_id, seq.seq_id, num_shared)
                seq.num_computed_tokens = num_shared * self.blocks.block_size
                seq.attached = True


def cheaper_mode(
    group: SequenceGroup, blocks: BlockManager, costs: PreemptionCosts
) -> PreemptionMode:
    """Out and in again, block by block; or its tokens once more, those of the shared blocks once.

    Nine tokens in three blocks of 4, where a token takes as long as moving half a block:

    >>> from types import SimpleNamespace
    >>> blocks, params = BlockManager(4, 9), SimpleNamespace(n=1, best_of=None)
    >>> group = SequenceGroup("r", list(range(9)), params)
    >>> _ = blocks.allocate_slots(group.leader.seq_id, group.leader.token_ids, 0, 9)
    >>> group.leader.num_computed_tokens = 9
    >>> cheaper_mode(group, blocks, SimpleNamespace(seconds_per_block=2.0, seconds_per_token=1.0))
    'recompute'
    >>> cheaper_mode(group, blocks, SimpleNamespace(seconds_per_block=1.0, seconds_per_token=1.0))
    'swap'
    """
    unfinished = group.unfinished
    tables = [blocks.block_table(seq.seq_id) for seq in unfinished]
    num_blocks = len({block for table in tables for block in table})
    num_shared = 0
    if len(unfinished) > 1:
        num_shared = group.prompt_len // blocks.block_size * blocks.block_size
    num_tokens = num_shared + sum(
        max(0, seq.num_computed_tokens - num_shared) for seq in unfinished
    )
    swap_cost = 2 * num_blocks * costs.seconds_per_block
    return "swap" if swap_cost < num_tokens * costs.seconds_per_token else "recompute"
