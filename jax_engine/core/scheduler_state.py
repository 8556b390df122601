"""§4.5, the queues of the scheduler and the moves between them: preempt, resume, rebuild, end.

The scheduling modes (`unified`, `sosp`) decide *which* group moves; `SchedulerState` moves it.

A preempted group gives up its blocks by swapping or by recomputation (§4.5 and §7.3). Which is
cheaper depends on the block size, the context and the machine (Figure 19): swapping moves each
block twice, recomputation runs all computed tokens through the model once more.
"""

import logging
from bisect import bisect_left, insort
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from itertools import count
from operator import attrgetter

from jax_engine.config.engine_config import PreemptionMode, PreemptionRule
from jax_engine.core.adapter_slots import NO_ADAPTER, AdapterSlots
from jax_engine.core.admission import Limits
from jax_engine.core.block_manager import BlockManager
from jax_engine.core.block_store import Contents, num_blocks
from jax_engine.core.blocks import OutOfBlocksError, distinct_blocks
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.sequence import FINISHED, Sequence, SequenceStatus
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.errors import ConfigError
from jax_engine.step import PreemptionCosts

type MeasureCosts = Callable[[], PreemptionCosts]


def check_rule(rule: PreemptionRule | None, costs: MeasureCosts | None) -> None:
    """
    Raises:
        ConfigError: The rule is "auto", and there are no costs.
    """
    if rule == "auto" and costs is None:
        raise ConfigError(
            'preemption_mode="auto" needs preemption_costs, got None: give them, or choose '
            '"recompute" or "swap"'
        )


def mode_for(
    group: SequenceGroup, manager: BlockManager, rule: PreemptionRule | None, costs: MeasureCosts
) -> PreemptionMode:
    """How to take this group's blocks. Without a rule: swap a group that forked."""
    if rule is None:
        return "swap" if group.forked else "recompute"
    if rule != "auto":
        return rule
    # Without CPU blocks there is no choice, and the costs need not be measured.
    return cheaper_mode(group, manager, costs()) if manager.num_cpu_blocks else "recompute"


def cheaper_mode(
    group: SequenceGroup, manager: BlockManager, costs: PreemptionCosts
) -> PreemptionMode:
    """Returns "swap" if moving the group's blocks out and in is faster than recomputing them."""
    tables = [manager.tables.get(seq.seq_id) for seq in group.unfinished()]
    num_blocks = distinct_blocks([table for table in tables if table is not None])
    swap = 2 * num_blocks * costs.seconds_per_block
    recompute = tokens_to_recompute(group, manager.block_size) * costs.seconds_per_token
    return "swap" if swap < recompute else "recompute"


def tokens_to_recompute(group: SequenceGroup, block_size: int) -> int:
    """Counts tokens of the prompt's full blocks once, later ones for each sequence."""
    computed = [seq.num_computed_tokens for seq in group.unfinished()]
    if len(computed) == 1:
        return computed[0]
    shared = group.prompt_len // block_size * block_size
    return shared + sum(max(0, one - shared) for one in computed)


logger = logging.getLogger("jax_engine.core")
LOG_EVERY = 50  # preemptions come in bursts; the others are logged at DEBUG
by_key = attrgetter("key")


class SchedulerState:
    """Waiting, running and swapped groups, each list sorted by `SequenceGroup.key`.

    Attributes:
        groups: All unfinished groups, by request id.
        seq_ids: Ids of all unfinished sequences. Only they have blocks and count in their groups.
        slots: Slots of the LoRA adapters that running groups use.
        preemption_mode: None: swap groups that forked, recompute others.
        costs: The costs that "auto" compares; None before it first has to.
        num_preemptions: How often each mode was used.
        rebuilding: In SOSP mode: the group whose sequences are being recomputed, if any.
    """

    def __init__(
        self,
        manager: BlockManager,
        limits: Limits,
        preemption_mode: PreemptionRule | None,
        preemption_costs: MeasureCosts | None = None,
    ) -> None:
        check_rule(preemption_mode, preemption_costs)
        self.manager = manager
        self.limits = limits
        self.slots = AdapterSlots(limits.max_loras)
        self.preemption_mode = preemption_mode
        self.costs: PreemptionCosts | None = None
        self._measure_costs = preemption_costs
        self.waiting: list[SequenceGroup] = []
        self.running: list[SequenceGroup] = []
        self.swapped: list[SequenceGroup] = []
        self.groups: dict[str, SequenceGroup] = {}
        self.seq_ids: set[int] = set()
        self.num_preemptions: dict[PreemptionMode, int] = {"recompute": 0, "swap": 0}
        self.rebuilding: SequenceGroup | None = None
        self._reserved: int | None = None  # by all running groups; None when not known
        self._next_seq_id = count()

    def add(self, group: SequenceGroup) -> None:
        """Queues a group that is new or starts a part as waiting."""
        self.groups[group.request_id] = group
        self._name(group.leader)
        insort(self.waiting, group, key=by_key)

    def take_back(self, group: SequenceGroup) -> None:
        """Undoes `add`, even one that was interrupted halfway."""
        if self.groups.get(group.request_id) is group:
            del self.groups[group.request_id]
        self.seq_ids.discard(group.seqs[0].seq_id)
        if group in self.waiting:
            self.waiting.remove(group)

    def clear(self) -> None:
        """Aborts all groups, even if they and the queues are inconsistent."""
        self.seq_ids.clear()  # they hold nothing any more: all is taken back below
        for group in self.groups.values():
            for seq in group.unfinished():
                self.end(seq, group, "abort")
        self.waiting, self.running, self.swapped = [], [], []
        self.groups.clear()
        self.rebuilding = self._reserved = None
        self.slots.clear()  # what failed may be what was to fill one
        self.manager.clear()

    def fork(self, parent: Sequence, index: int) -> Sequence:
        """A new sequence with the same tokens, sharing all blocks; not yet in its group."""
        child = parent.make_child(index)
        self._name(child)
        self.manager.fork(parent.seq_id, child.seq_id)
        return child

    def fits(self, group: SequenceGroup) -> bool:
        """Whether the group may join the running ones: under max_num_seqs, and with its adapter."""
        # The sum is kept while groups are only added.
        # Otherwise admitting n groups would take O(n^2).
        if self._reserved is None:
            self._reserved = sum([running.reserved for running in self.running])
        if self._reserved + group.reserved > self.limits.max_num_seqs:
            return False
        return self.slots.has_room_for(group.adapter)

    def allocate(
        self,
        seq: Sequence,
        group: SequenceGroup,
        end: int,
        out: SchedulerOutput,
        cached: SequenceOf[int] = (),
        loaded: Contents | None = None,
    ) -> None:
        """Makes positions num_computed_tokens .. end - 1 writable; the caller knows they fit.

        Raises:
            OutOfBlocksError: They did not fit: a scheduling rule counted wrongly.
        """
        num_loaded = num_blocks(loaded) if loaded else 0
        copies = self.manager.allocate_slots(
            seq.seq_id,
            seq.token_ids,
            seq.num_computed_tokens,
            end,
            cached=cached,
            num_loaded=num_loaded,
            cache_salt=group.cache_salt,
            chain=seq.chain,
            prompt_len=seq.prompt_len,
        )
        if copies is None:
            raise OutOfBlocksError(
                f"seq_id {seq.seq_id} needs blocks for {end} tokens, "
                f"{self.manager.num_free_gpu_blocks} are free: a bug in the scheduler, report it"
            )
        out.blocks_to_copy += copies
        if loaded:
            first = len(cached)
            blocks = self.manager.tables[seq.seq_id].ids[first : first + num_loaded]
            out.blocks_to_load.append((blocks, loaded))

    def run(
        self,
        seq: Sequence,
        group: SequenceGroup,
        end: int,
        out: SchedulerOutput,
        cached: SequenceOf[int] = (),
        loaded: Contents | None = None,
    ) -> None:
        """Allocates and schedules positions num_computed_tokens .. end - 1."""
        self.allocate(seq, group, end, out, cached, loaded)
        start, samples = seq.num_computed_tokens, 0
        if end == seq.num_tokens:
            samples = group.samples_per_seq
        out.scheduled.append(ScheduledSequence(seq, group, start, end - start, samples))

    def start_running(self, queue: list[SequenceGroup], out: SchedulerOutput) -> None:
        """Moves the head of `queue`, which `fits`, to the running groups; pins its adapter."""
        group = queue.pop(0)
        if group.adapter is not None:
            group.adapter_slot, is_new = self.slots.pin(group.adapter)
            if is_new:
                out.adapters.append((group.adapter_slot, group.adapter))
        group.set_status(SequenceStatus.RUNNING)
        insort(self.running, group, key=by_key)
        assert self._reserved is not None, "fits has counted them"
        self._reserved += group.reserved

    def preempt_youngest(self, out: SchedulerOutput) -> SequenceGroup:
        """Takes all blocks of the last running group, whose sequences only run together.

        By default a forked group is swapped, since recomputing would lose the sharing of its
        outputs; "auto" chooses the cheaper mode. If the CPU pool has no room, any group is
        recomputed.
        """
        group = self.running.pop()
        self._reserved = None
        self._unpin(group)
        mode = mode_for(group, self.manager, self.preemption_mode, self._known_costs)
        seq_ids = [seq.seq_id for seq in group.unfinished()]
        if mode == "swap" and self.manager.can_swap_out(seq_ids):
            out.blocks_to_swap_out += self.manager.swap_out(seq_ids)
            group.set_status(SequenceStatus.SWAPPED)
            insort(self.swapped, group, key=by_key)
        else:
            mode = "recompute"
            self._requeue(group)
        out.preempted.append((group.request_id, mode))
        self._count_preemption(group, mode)
        return group

    def _known_costs(self) -> PreemptionCosts:
        """Measures once, when first needed: most engines never preempt."""
        if self.costs is None:
            assert self._measure_costs is not None, "checked with the rule"
            self.costs = self._measure_costs()
            logger.info(
                "preemption costs %.3f ms to move a KV block one way, %.3f ms to recompute a token",
                1000 * self.costs.seconds_per_block,
                1000 * self.costs.seconds_per_token,
            )
        return self.costs

    def recompute_all(self) -> None:
        """Takes all groups' blocks, GPU and CPU, and queues them to be computed again.

        Call it only while no step is planned.
        """
        for group in self.running + self.swapped:
            self._unpin(group)
            self._requeue(group)
        self.running, self.swapped = [], []
        self.rebuilding = self._reserved = None

    def attach(self, group: SequenceGroup) -> None:
        """Attaches the siblings once the leader has recomputed the prompt's full blocks."""
        shared_tokens = group.prompt_len // self.manager.block_size * self.manager.block_size
        if group.leader.num_computed_tokens >= shared_tokens:
            self.share_prompt(group)

    def share_prompt(self, group: SequenceGroup) -> None:
        """Gives the siblings the leader's full prompt blocks again.

        Each sibling recomputes its own output.
        """
        leader, shared = group.leader, group.prompt_len // self.manager.block_size
        for seq in group.unfinished():
            if not seq.attached:
                self.manager.fork(leader.seq_id, seq.seq_id, shared)
                seq.num_computed_tokens = shared * self.manager.block_size
                seq.attached = True
        group.num_unattached = 0

    def end(
        self,
        seq: Sequence,
        group: SequenceGroup,
        reason: str,
        stop_reason: int | str | None = None,
    ) -> bool:
        """Ends a sequence, whatever the reason: it ends here and nowhere else.

        In this order: it says how it ended; its blocks go back, full ones into the prefix cache;
        its group counts it no more. With the last sequence of a part its group leaves its queue,
        and waits for its next part if there is one.

        A sequence that holds nothing only says how it ended: it is a beam's hypothesis, or it had
        ended when the engine found a stop string at its end.

        Args:
            reason: "stop", "length" or "abort".

        Returns:
            Whether its group has ended.
        """
        status = seq.status
        seq.status, seq.finish_reason, seq.stop_reason = FINISHED[reason], reason, stop_reason
        if seq.seq_id not in self.seq_ids:
            return False
        self._give_back(seq, group)
        if group.num_unattached:  # so others are left
            # If the leader ends in the middle of a rebuild, the next one starts over.
            group.leader.attached = True
            group.num_unattached = sum(not one.attached for one in group.unfinished())
        if not group.finished:
            return False
        self._remove(group, status)
        if not group.num_left:
            return True
        group.start_next_part()
        self.add(group)
        return False

    def _give_back(self, seq: Sequence, group: SequenceGroup) -> None:
        """Takes the id, the blocks and the place under max_num_seqs of a sequence that ends."""
        self.seq_ids.remove(seq.seq_id)
        # A step that was planned ahead did not know the token that filled the last computed block
        computed = seq.num_computed_tokens
        self.manager.register(seq.seq_id, seq.token_ids, computed, group.cache_salt)
        self.manager.free(seq.seq_id)
        if group.beam is None:  # a beam search keeps all its places until it ends
            group.reserved -= 1  # exact: an unforked sequence ends with its whole part
            self._reserved = None

    def _remove(self, group: SequenceGroup, status: SequenceStatus) -> None:
        """Takes a group whose sequences had this status out of its queue and of `groups`."""
        if self.rebuilding is group:
            self.rebuilding = None
        queue = self.running
        if status is not SequenceStatus.RUNNING:  # it was aborted, or the step ahead preempted it
            queue = self.waiting if status is SequenceStatus.WAITING else self.swapped
        self._reserved = None
        self._unpin(group)
        del queue[bisect_left(queue, group.key, key=by_key)]
        del self.groups[group.request_id]

    def _unpin(self, group: SequenceGroup) -> None:
        """Lets others have the slot of a group that runs no more."""
        if group.adapter_slot:
            assert group.adapter is not None
            group.adapter_slot = NO_ADAPTER
            self.slots.unpin(group.adapter)

    def _name(self, seq: Sequence) -> None:
        seq.seq_id = next(self._next_seq_id)
        self.seq_ids.add(seq.seq_id)

    def _requeue(self, group: SequenceGroup) -> None:
        """Queues a group as waiting, to be computed again."""
        self._forget_computed(group)
        group.set_status(SequenceStatus.WAITING)
        insort(self.waiting, group, key=by_key)

    def _forget_computed(self, group: SequenceGroup) -> None:
        seqs = group.unfinished()
        for seq in seqs:
            self.manager.free(seq.seq_id)
            seq.num_computed_tokens = 0
            seq.is_recomputed = True
            seq.candidates = None  # its last token is computed again, and yields them again
            seq.attached = False
        seqs[0].attached = True
        group.num_unattached = len(seqs) - 1

    def _count_preemption(self, group: SequenceGroup, mode: PreemptionMode) -> None:
        self.num_preemptions[mode] += 1
        group.num_preemptions += 1
        total = sum(self.num_preemptions.values())
        logger.log(
            logging.WARNING if total % LOG_EVERY == 1 else logging.DEBUG,
            "preempted request %s by %s (preemption %d): %d of %d KV blocks are free; "
            "more KV cache memory or a lower max_num_seqs avoids it",
            group.request_id,
            mode,
            total,
            self.manager.num_free_gpu_blocks,
            self.manager.gpu.num_blocks,
        )
