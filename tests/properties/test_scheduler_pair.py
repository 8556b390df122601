"""The oracle's scheduler and the engine's, given the same requests, make the same decisions.

Both are driven by `Driver`, which asserts I1 to I6, I9 to I13, I15 to I20, I22, I23 and I54 on
each side. Here their outputs, queues, sequences, tables, free orders and errors are compared (I21),
over random arrivals, forks, aborts, stop strings and pool sizes, in each mode.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from jax_engine.core import BlockManager, Scheduler, SequenceGroup
from reference.blocks import BlockManager as ReferenceBlockManager
from reference.scheduler import Scheduler as ReferenceScheduler
from reference.sequence import SequenceGroup as ReferenceSequenceGroup
from tests.properties.test_block_manager_pair import future_allocations
from tests.support.drive import Driver
from tests.support.guesses import MAX_DRAFTS, Guesses, drafting_settings, guesses
from tests.support.integrity import check_integrity
from tests.support.strategies import Settings, next_token, requests, settings


class Recorder:
    """A scheduler that remembers its last output, and the tables that it left, as plain values."""

    def __init__(self, scheduler: Any, blocks: Any) -> None:
        self._scheduler, self._blocks = scheduler, blocks
        self.last: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def schedule(self, *drafts: Any) -> Any:
        output = self._scheduler.schedule(*drafts)
        self.last = {
            "scheduled": [
                (e.seq.seq_id, e.group.request_id, e.start, e.num_tokens, e.num_samples, e.drafts)
                for e in output.scheduled
            ],
            "swap_in": list(output.blocks_to_swap_in),
            "swap_out": list(output.blocks_to_swap_out),
            "copy": list(output.blocks_to_copy),
            "preempted": list(output.preempted),
            "adapters": list(output.adapters),
            "slots": [e.group.adapter_slot for e in output.scheduled],
            "num_batched_tokens": output.num_batched_tokens,
            "tables": {
                seq.seq_id: self._blocks.block_table(seq.seq_id)
                for group in self._scheduler.running
                for seq in group.seqs
            },
        }
        return output


class SchedulerPair(RuleBasedStateMachine):
    """`scheduling` is set by the subclasses; each mode gets its own examples."""

    scheduling: str
    max_draft_tokens = 0
    drafter: Callable[[Any], list[int]] | None = None

    def choice(self) -> st.SearchStrategy[Settings]:
        return settings(self.scheduling)

    @initialize(data=st.data())
    def build(self, data: st.DataObject) -> None:
        self.build_pair(data)

    def build_pair(self, data: st.DataObject) -> None:
        self.settings = data.draw(self.choice())
        sides = [
            (ReferenceBlockManager, ReferenceScheduler, ReferenceSequenceGroup),
            (BlockManager, Scheduler, SequenceGroup),
        ]
        self.drivers: list[Driver] = []
        self.group_classes = [group_class for _, _, group_class in sides]
        for manager_class, scheduler_class, _ in sides:
            blocks = self.settings.block_manager(manager_class)
            scheduler = scheduler_class(
                blocks, **self.settings.scheduler_arguments, max_draft_tokens=self.max_draft_tokens
            )
            recorder = Recorder(scheduler, blocks)
            self.drivers.append(Driver(recorder, blocks, self.settings, self.drafter))
        self.reference, self.engine = self.drivers
        self.num_requests = 0

    @rule(data=st.data(), count=st.integers(1, 5))
    def add(self, data: st.DataObject, count: int) -> None:
        """I21: both accept, or both refuse, and a refusal leaves no trace."""
        for _ in range(count):
            adapters = self.settings.max_loras > 0
            request = data.draw(
                requests(self.settings.max_model_len, beams=True, adapters=adapters)
            )
            name = str(self.num_requests)
            self.num_requests += 1
            refused = []
            for driver, group_class in zip(self.drivers, self.group_classes, strict=True):
                try:
                    driver.add(request.group(group_class, name), request)
                except ValueError as error:
                    refused.append(str(error))
            assert len(refused) in (0, 2), refused
            if refused:
                self.same_state()
            elif self.engine.accepted[name].part_size < request.num_samples:
                event("runs in parts")

    @rule(times=st.integers(1, 6))
    def step(self, times: int) -> None:
        for _ in range(times):
            for driver in self.drivers:
                driver.step()
            assert self.engine.scheduler.last == self.reference.scheduler.last

    @precondition(lambda self: self.num_requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        """I22: anywhere in its life, an unknown one, or twice."""
        name = str(data.draw(st.integers(0, self.num_requests)))
        aborted = [driver.abort(name) for driver in self.drivers]
        assert aborted[0] == aborted[1]

    @precondition(lambda self: self.engine.groups())
    @rule(data=st.data())
    def stop_string(self, data: st.DataObject) -> None:
        """The engine found a stop string in a sequence that got a token in the last step."""
        scheduled = self.engine.scheduler.last.get("scheduled", [])
        accepted = self.engine.accepted
        candidates = [
            seq_id
            for seq_id, name, _, _, num_samples, _ in scheduled
            if num_samples and not accepted[name].params.use_beam_search
        ]
        if candidates:
            seq_id = data.draw(st.sampled_from(candidates))
            self.reference.scheduler.finish_sequence(seq_id, "stop", "word")
            for group in self.engine.groups():
                for seq in group.unfinished():
                    if seq.seq_id == seq_id:
                        self.engine.scheduler.finish_sequence(seq, group, "stop", "word")

    @invariant()
    def same_state(self) -> None:
        engine, reference = self.engine, self.reference
        for name in ("waiting", "running", "swapped"):
            queues = [
                [group.request_id for group in getattr(driver.scheduler, name)]
                for driver in self.drivers
            ]
            assert queues[0] == queues[1], name
        assert list(engine.accepted) == list(reference.accepted)
        for name, group in engine.accepted.items():
            assert describe(group, engine) == describe(reference.accepted[name], reference)
        assert dict(engine.scheduler.num_preemptions) == dict(reference.scheduler.num_preemptions)
        assert engine.blocks.num_cached_blocks == reference.blocks.num_cached_blocks
        assert future_allocations(engine.blocks) == future_allocations(reference.blocks), "I27"
        assert engine.finished == reference.finished

    @invariant()
    def sound(self) -> None:
        check_integrity(self.engine.blocks)
        self.engine.check_contents()

    def teardown(self) -> None:
        """I20, I9: whatever was accepted finishes on both sides, in the same steps."""
        if not hasattr(self, "drivers"):
            return
        while self.engine.scheduler.has_unfinished():
            assert self.engine.num_steps <= self.engine.step_bound, "I20"
            self.step(1)
            self.same_state()
        for driver in self.drivers:
            driver.finish_all()


def describe(group: Any, driver: Driver) -> Any:
    """All that can be seen of a group and of its sequences' tables."""
    return (
        group.forked,
        group.adapter_slot,
        group.part_size,
        [
            (
                seq.seq_id,
                seq.index,
                list(seq.token_ids),
                seq.num_computed_tokens,
                seq.status.name,
                seq.finish_reason,
                seq.stop_reason,
                seq.output_len,
                list(seq.output_token_ids),
                driver.blocks.block_table(seq.seq_id),
                driver.blocks.device(seq.seq_id),
            )
            for seq in group.seqs
        ],
    )


class UnifiedPair(SchedulerPair):
    scheduling = "unified"


class DraftingPair(SchedulerPair):
    """Sequences have guesses, right and wrong ones."""

    def choice(self) -> st.SearchStrategy[Settings]:
        return drafting_settings()

    @initialize(data=st.data(), guess=guesses(), max_draft_tokens=MAX_DRAFTS)
    def build(self, data: st.DataObject, guess: Guesses, max_draft_tokens: int) -> None:  # type: ignore[override]
        self.max_draft_tokens = max_draft_tokens
        self.drafter = lambda seq: guess(
            seq.token_ids, lambda tokens: next_token(tokens, seq.index)
        )
        self.build_pair(data)


class SospPair(SchedulerPair):
    scheduling = "sosp"


class MixedPair(SchedulerPair):
    scheduling = "sosp-mixed"


TestDraftingPair = DraftingPair.TestCase
TestUnifiedPair = UnifiedPair.TestCase
TestSospPair = SospPair.TestCase
TestMixedPair = MixedPair.TestCase
