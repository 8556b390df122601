"""Drives a scheduler step by step with a stub for the model, and asserts the invariants each time.

Works on the oracle's scheduler and on the engine's. Tokens come from `strategies.next_token`.
"""

from collections.abc import Callable
from typing import Any

from tests.support.invariants import (
    check_adapters,
    check_blocks,
    check_order_of_service,
    check_output,
    check_queues,
    check_quiescence,
    check_watermark,
)
from tests.support.shadow import ShadowCache, known_and_drafted
from tests.support.strategies import Request, Settings, next_candidates, next_token


def draw(entry: Any) -> list[Any]:
    """What the stub model gives a scheduled sequence: tokens, one more behind each draft, or a
    beam's candidates."""
    seq = entry.seq
    if entry.group.params.use_beam_search:
        assert entry.num_samples == 1, "a beam has one row of candidates"
        return next_candidates(seq.token_ids)
    if entry.drafts:
        tokens, known = known_and_drafted(entry), len(seq.token_ids)
        return [next_token(tokens[: known + i], seq.index) for i in range(len(entry.drafts) + 1)]
    return [next_token(seq.token_ids, seq.index + i) for i in range(entry.num_samples)]


def take_accepted(scheduler: Any) -> list[Any]:
    """The groups that end with drafts that were right; the oracle takes these in `update`."""
    ended: list[Any] = []
    while hasattr(scheduler, "take_accepted"):
        taken, groups = scheduler.take_accepted()
        ended += groups
        if not taken:
            break
    return ended


class Driver:
    """A scheduler, its block manager, a shadow of the cache, and a record of what happened.

    `drafter` gives each running sequence its drafts before a step is planned.
    """

    def __init__(
        self,
        scheduler: Any,
        blocks: Any,
        settings: Settings,
        drafter: Callable[[Any], list[int]] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.drafter = drafter
        self.blocks = blocks
        self.settings = settings
        self.shadow = ShadowCache(
            settings.block_size, settings.num_gpu_blocks, settings.num_cpu_blocks
        )
        self.accepted: dict[str, Any] = {}
        self.finished: list[str] = []
        self.num_steps = 0
        self.work = 0
        self.num_parts = 0
        self.num_preempted = 0
        self.num_copies = 0
        self._slots: dict[int, Any] = {}
        self._order: dict[str, int] = {}
        self._preempted: set[str] = set()
        self._computed: dict[int, int] = {}

    def key(self, group: Any) -> tuple[float, ...]:
        arrival = (group.arrival_time, self._order[group.request_id])
        return arrival if self.settings.policy == "fcfs" else (group.priority, *arrival)

    def add(self, group: Any, request: Request) -> None:
        """Add a group; whatever error the scheduler raises for it goes to the caller."""
        self.scheduler.add_group(group)
        self._order[group.request_id] = len(self._order)
        self.accepted[group.request_id] = group
        max_tokens = request.max_tokens or self.settings.max_model_len
        self.num_parts += -(-request.num_samples // group.part_size)
        self.work += request.num_samples * (len(request.prompt) + max_tokens)

    @property
    def step_bound(self) -> int:
        """I20: the first running group gains a token each step, and loses what it has only after an
        older one came back before it, once for each part of the others. So this many suffice."""
        return (self.num_parts + 1) * self.work

    def step(self) -> None:
        """One step, with everything asserted that can be."""
        waiting = list(self.scheduler.waiting)
        lengths = {g.request_id: [list(s.token_ids) for s in g.seqs] for g in self.groups()}
        unfinished = self.scheduler.has_unfinished()
        output = self._plan()
        self.num_steps += unfinished
        assert bool(output.scheduled) == unfinished, "I20: an empty step with work left"
        check_output(output, self.blocks, self.settings)
        check_order_of_service(self.scheduler, output, waiting, self.key)
        check_adapters(self.scheduler, output, self._slots, self.settings.max_loras)
        watermark_blocks = int(self.settings.watermark * self.settings.num_gpu_blocks)
        check_watermark(self.scheduler, self.blocks, waiting, watermark_blocks)
        for group in self.groups():
            now = [list(seq.token_ids) for seq in group.seqs]
            assert now == lengths[group.request_id], "I19: planning touched tokens"
        self._record(output)
        self.check_state()
        self.shadow.replay(output, self.blocks)
        sampled = {e.seq.seq_id: draw(e) for e in output.scheduled if e.num_samples > 0}
        for group in [*self.scheduler.update(sampled), *take_accepted(self.scheduler)]:
            self.finished.append(group.request_id)
            assert all(seq.finish_reason is not None for seq in group.seqs), "I16"
        for entry in output.scheduled:
            if entry.drafts:
                self._computed[entry.seq.seq_id] = entry.seq.num_computed_tokens
        self.check_state()

    def _plan(self) -> Any:
        """A step with guesses; the oracle has them on its sequences."""
        if self.drafter is None:
            return self.scheduler.schedule()
        seqs = [seq for group in self.scheduler.running for seq in group.seqs]
        if hasattr(self.scheduler, "take_accepted"):
            return self.scheduler.schedule({seq.seq_id: self.drafter(seq) for seq in seqs})
        for seq in seqs:
            seq.drafts = self.drafter(seq)
        return self.scheduler.schedule()

    def abort(self, request_id: str) -> bool:
        """I22: frees exactly the references of this group, and does nothing the second time."""
        group = self.accepted.get(request_id)
        refs = self._refs()
        held = [
            (self.blocks.device(seq.seq_id), block)
            for seq in (group.seqs if group else [])
            for block in self.blocks.block_table(seq.seq_id)
        ]
        aborted = bool(self.scheduler.abort(request_id))
        for place in held:
            refs[place] -= 1
        assert self._refs() == refs, "I22"
        assert not self.scheduler.abort(request_id), "I22: aborted twice"
        self.check_state()
        return aborted

    def finish_all(self) -> None:
        """I20: every accepted request finishes, within the bound; I9: and leaves nothing behind."""
        while self.scheduler.has_unfinished():
            assert self.num_steps <= self.step_bound, "I20: too many steps"
            self.step()
        check_quiescence(self.blocks, self.settings.num_gpu_blocks, self.settings.num_cpu_blocks)
        for group in self.accepted.values():
            assert all(seq.finish_reason is not None for seq in group.seqs), "I20"

    def groups(self) -> list[Any]:
        scheduler = self.scheduler
        return [*scheduler.waiting, *scheduler.running, *scheduler.swapped]

    def check_state(self) -> None:
        """I1 to I5, I16 to I18, and I13 for all that is in the cache, on either device."""
        seqs = [seq for group in self.accepted.values() for seq in group.seqs]
        settings = self.settings
        check_blocks(
            self.blocks,
            [seq.seq_id for seq in seqs],
            settings.num_gpu_blocks,
            settings.num_cpu_blocks,
        )
        check_queues(self.scheduler, self.blocks, self.key, settings.max_num_seqs)

    def check_contents(self) -> None:
        """I13 between steps: what counts as computed is there, on whichever device it should be."""
        for group in self.groups():
            for seq in group.seqs:
                table = self.blocks.block_table(seq.seq_id)
                computed = seq.token_ids[: seq.num_computed_tokens] if table else []
                self.shadow.check(computed, table, self.blocks.device(seq.seq_id))

    def _refs(self) -> dict[tuple[str, int], int]:
        pools = ("gpu", self.settings.num_gpu_blocks), ("cpu", self.settings.num_cpu_blocks)
        return {
            (device, block): self.blocks.ref_count(block, device)
            for device, num_blocks in pools
            for block in range(num_blocks)
        }

    def _record(self, output: Any) -> None:
        """Count; and I23: the chunks of a request that was never preempted join up to its prompt,
        less the hit, which is whole blocks (I26)."""
        self.num_copies += len(output.blocks_to_copy)
        self.num_preempted += len(output.preempted)
        self._preempted |= {request_id for request_id, _ in output.preempted}
        for entry in output.scheduled:
            group = entry.group
            if group.forked or group.request_id in self._preempted:
                continue
            computed = self._computed.get(entry.seq.seq_id)
            if computed is None:
                assert entry.start % self.settings.block_size == 0, "I26"
                assert entry.start < group.prompt_len, "I26"
            else:
                assert entry.start == computed, "I23: a gap between chunks"
            end = entry.start + entry.num_tokens - len(entry.drafts)
            self._computed[entry.seq.seq_id] = end
