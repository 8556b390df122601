"""The scheduler: who computes in the next step, and who gives way (paper 4.5).

This is its public face. `schedule` plans a step, the engine runs it and draws tokens, and `update`
takes the tokens in: it forks a group when its first tokens are drawn, verifies drafts
(`speculation`), ends sequences, and gives their blocks back at once. A group of which no sequence
is left goes on with its next part, if there is one, as if it had just arrived at its old place. For
beam search it takes candidates in, and when all beams have drawn, lets `beam_search` select. The
ways of planning are chapters of their own, `scheduler_sosp` and `scheduler_unified`.

>>> from types import SimpleNamespace
>>> params = SimpleNamespace(n=2, best_of=None, max_tokens=2, min_tokens=0, stop_token_ids=[],
...                          ignore_eos=True)
>>> scheduler = Scheduler(
...     BlockManager(4, 9), max_num_seqs=4, max_num_batched_tokens=16, max_model_len=16
... )
>>> scheduler.add_group(SequenceGroup("r0", [1, 2, 3, 4, 5, 6, 7], params))
>>> [(s.seq.seq_id, s.start, s.num_tokens, s.num_samples) for s in scheduler.schedule().scheduled]
[(0, 0, 7, 2)]
>>> scheduler.update({0: [8, 9]})                     # two samples: the sequence forks
[]
>>> output = scheduler.schedule()
>>> [(s.seq.seq_id, s.start, s.num_tokens, s.num_samples) for s in output.scheduled]
[(0, 7, 1, 1), (1, 7, 1, 1)]
>>> output.blocks_to_copy                             # the first of them to write gets a copy
[(7, 6)]
>>> [group.request_id for group in scheduler.update({0: [3], 1: [4]})]
['r0']
>>> scheduler.has_unfinished(), scheduler.block_manager.num_free_gpu_blocks
(False, 9)
"""

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from itertools import count
from typing import Any, Literal

from reference.adapter_slots import AdapterSlots
from reference.admission import AdmissionError, check_admission
from reference.beam_search import advance, select
from reference.blocks import BlockManager
from reference.sampling_options import NO_TOKEN, Candidate
from reference.scheduler_config import (
    Policy,
    PreemptionCosts,
    PreemptionMode,
    SchedulerConfig,
    Scheduling,
)
from reference.scheduler_sosp import schedule_sosp
from reference.scheduler_state import ScheduledSequence, SchedulerOutput, SchedulerState
from reference.scheduler_unified import schedule_unified
from reference.sequence import (
    FinishReason,
    Sequence,
    SequenceGroup,
    SequenceStatus,
    finish_reason,
)
from reference.speculation import accepted


class Scheduler:
    """All unfinished requests, and what to do with them next.

    Takes the settings of `SchedulerConfig` by keyword; prefix caching needs "unified".
    """

    def __init__(
        self,
        block_manager: BlockManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        scheduling: Scheduling = "unified",
        policy: Policy = "fcfs",
        preemption_mode: PreemptionMode | Literal["auto"] | None = None,
        enable_chunked_prefill: bool = True,
        long_prefill_token_threshold: int = 0,
        admission_rule: bool = True,
        preemption_costs: PreemptionCosts | None = None,
        max_draft_tokens: int = 0,
        max_loras: int = 0,
    ) -> None:
        self.config = SchedulerConfig(
            max_num_seqs,
            max_num_batched_tokens,
            max_model_len,
            scheduling,
            policy,
            preemption_mode,
            enable_chunked_prefill,
            long_prefill_token_threshold,
            admission_rule,
            preemption_costs,
            max_draft_tokens,
            max_loras,
        )
        if block_manager.enable_prefix_caching and scheduling != "unified":
            raise ValueError(
                f"enable_prefix_caching=True needs scheduling='unified', not {scheduling!r}"
            )
        self.block_manager = block_manager
        self.groups: dict[str, SequenceGroup] = {}
        self._state = SchedulerState(block_manager, self.config)
        self._last = SchedulerOutput()
        self._seq_ids = count()
        self._add_indices = count()

    @property
    def waiting(self) -> list[SequenceGroup]:
        return self._state.waiting

    @property
    def running(self) -> list[SequenceGroup]:
        return self._state.running

    @property
    def swapped(self) -> list[SequenceGroup]:
        return self._state.swapped

    @property
    def slots(self) -> AdapterSlots:
        """Which adapter lies where on the device."""
        return self._state.slots

    @property
    def num_preemptions(self) -> dict[PreemptionMode, int]:
        return self._state.num_preemptions

    def has_unfinished(self) -> bool:
        return bool(self.groups)

    def add_group(self, group: SequenceGroup) -> None:
        """Accept a request, or raise AdmissionError and remember nothing of it."""
        if group.request_id in self.groups:
            raise AdmissionError(group, "requests of this id", 2, 1, "give each a name of its own")
        if self.config.admission_rule:
            group.part_size = check_admission(group, self.block_manager, self.config)
        group.leader.seq_id = next(self._seq_ids)
        group.add_index = next(self._add_indices)
        self.groups[group.request_id] = group
        self._state.enter(group, SequenceStatus.WAITING)

    def schedule(self) -> SchedulerOutput:
        """Plan the next step and take the blocks for it. Run it, then call `update`."""
        plan = schedule_unified if self.config.scheduling == "unified" else schedule_sosp
        self._last = plan(self._state)
        return self._last

    def update(self, sampled: Mapping[int, SequenceOf[Any]]) -> list[SequenceGroup]:
        """Take in the tokens drawn for the last step, by seq_id; return the groups that ended.

        For a sequence of a beam search they are candidates, (token, log-probability), best first.
        For one with drafts they are the tokens drawn behind its last token and behind each draft;
        those behind a wrong one may be left out. Sequences that ended since the step was planned
        (an abort) are passed over.
        """
        done = [entry for entry in self._last.scheduled if not entry.seq.finished]
        self._last = SchedulerOutput()
        for entry in done:
            entry.seq.num_computed_tokens += entry.num_tokens - entry.num_drafts
            self._state.attach(entry.group)
        ended = []
        for entry in done:
            if entry.num_samples == 0:
                continue
            drawn = sampled[entry.seq.seq_id]
            if entry.group.beam_search:
                if self._hold(entry, drawn):
                    ended.append(entry.group)
                continue
            for seq, token_id in self._forks(entry, drawn):
                if self._append(entry.group, seq, token_id):
                    ended.append(entry.group)
        return ended + self._take_more([entry for entry in done if entry.drafts], sampled)

    def finish_sequence(
        self, seq_id: int, reason: FinishReason, stop_reason: int | str | None = None
    ) -> None:
        """End a sequence from outside (a stop string was found); no-op if it is not there."""
        for group in list(self.groups.values()):
            for seq in group.unfinished:
                if seq.seq_id == seq_id:
                    self._finish(group, seq, reason, stop_reason)

    def abort(self, request_id: str, stop_reason: str | None = None) -> bool:
        """End all sequences of a request; False if there is no such unfinished request."""
        group = self.groups.get(request_id)
        if group is None:
            return False
        for seq in group.unfinished:
            self._end(seq, "abort", stop_reason)
        self._forget(group)
        return True

    def _take_more(
        self, drafted: SequenceOf[ScheduledSequence], sampled: Mapping[int, SequenceOf[Any]]
    ) -> list[SequenceGroup]:
        """What drafts that were right have brought beyond each first token; the groups that ended.

        One token of each sequence after the other, as if each had taken a step. A sequence that
        ends drops the rest.
        """
        ended = []
        taken = [(entry, accepted(entry.drafts, sampled[entry.seq.seq_id])) for entry in drafted]
        for i in range(1, max((len(token_ids) for _, token_ids in taken), default=0)):
            for entry, token_ids in taken:
                if i < len(token_ids) and not entry.seq.finished:
                    entry.seq.num_computed_tokens += 1
                    if self._append(entry.group, entry.seq, token_ids[i]):
                        ended.append(entry.group)
        for entry in drafted:
            if not entry.seq.finished:
                self.block_manager.trim(entry.seq.seq_id, entry.seq.num_computed_tokens)
                self._offer(entry.group, entry.seq)
        return ended

    def _forks(
        self, entry: ScheduledSequence, drawn: SequenceOf[int]
    ) -> list[tuple[Sequence, int]]:
        """Who gets which of the first tokens; the first draw of several samples forks a group."""
        parent, group = entry.seq, entry.group
        seqs = [parent]
        for i in range(1, entry.num_samples):
            child = parent.fork(parent.index + i, next(self._seq_ids))
            self.block_manager.fork(parent.seq_id, child.seq_id)
            seqs.append(child)
            group.seqs.append(child)
            group.forked = True
        return list(zip(seqs, drawn[: entry.num_samples], strict=True))

    def _append(self, group: SequenceGroup, seq: Sequence, token_id: int) -> bool:
        """Append a token, which may end the sequence. True if its group has ended, too."""
        seq.append(token_id)
        reason = finish_reason(seq, group, self.config.max_model_len)
        if reason is None:
            return False
        self._offer(group, seq)
        return self._finish(group, seq, *reason)

    def _offer(self, group: SequenceGroup, seq: Sequence) -> None:
        """Let the prefix cache know the blocks that drafts which were right have filled."""
        computed = seq.token_ids[: seq.num_computed_tokens]
        self.block_manager.offer(seq.seq_id, group.contents(computed), group.salt)

    def _hold(self, entry: ScheduledSequence, candidates: SequenceOf[Candidate]) -> bool:
        """Keep what a beam drew; select when all beams of its group have drawn. True if done."""
        entry.seq.candidates = list(candidates)
        group = entry.group
        if any(seq.candidates is None for seq in group.unfinished):
            return False
        chosen = select(group, self.config.max_model_len)
        group.hypotheses = chosen.hypotheses
        if not chosen.done:
            advance(group, chosen.live, self.block_manager, self._seq_ids)
            return False
        if not group.hypotheses:  # no beam had a candidate
            return self.abort(group.request_id, NO_TOKEN)
        for seq in group.unfinished:
            self.block_manager.free(seq.seq_id)
        group.seqs = group.hypotheses
        for rank, seq in enumerate(group.seqs):
            seq.index = rank
        self._forget(group)
        return True

    def _finish(
        self,
        group: SequenceGroup,
        seq: Sequence,
        reason: FinishReason,
        stop_reason: int | str | None,
    ) -> bool:
        """End a sequence; after the last one of a part comes the next part. True if none does."""
        self._end(seq, reason, stop_reason)
        if group.unfinished:
            return False
        if group.start_next_part():
            self._state.leave(group)
            group.leader.seq_id = next(self._seq_ids)
            self._state.enter(group, SequenceStatus.WAITING)
            return False
        self._forget(group)
        return True

    def _end(self, seq: Sequence, reason: FinishReason, stop_reason: int | str | None) -> None:
        self.block_manager.free(seq.seq_id)
        seq.finish(reason, stop_reason)

    def _forget(self, group: SequenceGroup) -> None:
        self._state.leave(group)
        del self.groups[group.request_id]
