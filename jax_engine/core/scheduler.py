"""§4.5, the scheduler: iteration-level scheduling of sequence groups over a paged KV cache.

One step is `schedule()`, the model, `update(sampled)`. While the model runs, `advance()` and
`schedule()` may plan the next step. This is the slides' centralised controller: plain Python.
"""

from collections import deque
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from typing import Any

from jax_engine.config.engine_config import Policy, PreemptionMode, PreemptionRule, Scheduling
from jax_engine.core import sosp, unified
from jax_engine.core.adapter_slots import AdapterSlots
from jax_engine.core.admission import Limits, check_drafts, check_prefix_caching, check_request
from jax_engine.core.block_manager import BlockManager
from jax_engine.core.decoding import Drafts, accepted, add_drafts, take_samples
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.scheduler_state import MeasureCosts, SchedulerState
from jax_engine.core.sequence import Sequence, StopRule
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.errors import InvalidRequestError
from jax_engine.step import PreemptionCosts


class Scheduler:
    """Decides which tokens are computed in which step, and where their KV goes.

    Args:
        block_manager: Used by this scheduler only.
        max_num_seqs: Sequences running at once.
        max_num_batched_tokens: Tokens of one step.
        max_model_len: Tokens of one sequence, prompt and output.
        scheduling: "unified", "sosp" (prompt steps and decode steps) or "sosp-mixed".
        policy: "fcfs", or "priority": smaller `SequenceGroup.priority` first, then by arrival.
        preemption_mode: None: swap groups that forked, recompute others. "auto": the cheaper one.
        preemption_costs: Measures the costs that "auto" compares, when it first has to.
        enable_chunked_prefill: Spread prompts over steps (unified only).
        long_prefill_token_threshold: Most prompt tokens of a sequence in one step; 0: no limit.
        max_loras: Slots for LoRA adapters on the device; 0: requests with one are refused.
        max_draft_tokens: Drafts of all sequences in one step.
        max_samples: Tokens that one step can draw, and its rows, of which each draft is one; only
            drafts could make them too many.
        max_concurrent_batches: As in `Capabilities`. If several, a sequence whose token is drawn
            waits for it, and others are in the steps behind.

    Raises:
        ConfigError: A limit is too small or contradicts another, or "auto" has no costs.
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
        preemption_mode: PreemptionRule | None = None,
        preemption_costs: MeasureCosts | None = None,
        enable_chunked_prefill: bool = True,
        long_prefill_token_threshold: int = 0,
        max_loras: int = 0,
        max_draft_tokens: int = 0,
        max_samples: int = 2**31,
        max_concurrent_batches: int = 1,
    ) -> None:
        limits = Limits(
            max_num_seqs,
            max_num_batched_tokens,
            max_model_len,
            scheduling,
            enable_chunked_prefill and scheduling == "unified",
            long_prefill_token_threshold,
            max_loras,
        )
        check_prefix_caching(block_manager.enable_prefix_caching, scheduling)
        check_drafts(max_draft_tokens, scheduling)
        self.block_manager = block_manager
        self.scheduling = scheduling
        self.policy = policy
        self._limits = limits
        self._state = SchedulerState(block_manager, limits, preemption_mode, preemption_costs)
        self._scheduled: list[ScheduledSequence] = []
        self._advanced: deque[list[ScheduledSequence]] = deque()
        self._num_batches = max_concurrent_batches
        self._accepted: list[tuple[ScheduledSequence, list[int]]] = []
        self._max_draft_tokens, self._max_samples = max_draft_tokens, max_samples
        self._num_added = 0

    @property
    def max_num_batched_tokens(self) -> int:
        return self._limits.max_num_batched_tokens

    @property
    def preemption_costs(self) -> PreemptionCosts | None:
        """The costs that "auto" compares; None before it first has to."""
        return self._state.costs

    @property
    def slots(self) -> AdapterSlots:
        """Where the LoRA adapters lie that running requests use, or have used."""
        return self._state.slots

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
    def groups(self) -> dict[str, SequenceGroup]:
        """All unfinished groups, by request id."""
        return self._state.groups

    @property
    def num_preemptions(self) -> dict[PreemptionMode, int]:
        """Number of preemptions, by mode."""
        return self._state.num_preemptions

    @property
    def seq_ids(self) -> set[int]:
        """Those of all unfinished sequences."""
        return self._state.seq_ids

    def has_unfinished(self) -> bool:
        return bool(self._state.groups)

    def check_group(self, group: SequenceGroup) -> None:
        """Raises what `add_group` would raise for a request of this size; adds nothing."""
        check_request(group, self._limits, self.block_manager)

    def add_group(self, group: SequenceGroup) -> None:
        """Accepts a request that is certain to finish.

        Raises:
            RequestTooLargeError: It might not finish; no trace of it is kept.
            InvalidRequestError: Its prompt is empty, or its id belongs to an unfinished request.
        """
        if group.request_id in self.groups:
            raise InvalidRequestError(
                f"request_id {group.request_id!r} belongs to a request that is not finished: "
                "use another one, or abort it first"
            )
        part_size = check_request(group, self._limits, self.block_manager)
        if part_size < group.num_samples:
            group.limit_parts(part_size)
        arrival = (group.arrival_time, self._num_added)
        group.key = arrival if self.policy == "fcfs" else (group.priority, *arrival)
        group.stop = StopRule.for_request(
            group.params, group.eos_token_ids, group.prompt_len, self._limits.max_model_len
        )
        self._num_added += 1
        self._state.add(group)

    def take_back(self, group: SequenceGroup) -> None:
        """Undoes the last `add_group`, even one that was interrupted halfway."""
        self._state.take_back(group)
        if hasattr(group, "key"):  # its number is the next one's again
            self._num_added = int(group.key[-1])

    def abort(self, request_id: str, stop_reason: str | None = None) -> bool:
        """Ends a request in any queue; returns False if no unfinished request has that id."""
        group = self.groups.get(request_id)
        if group is None:
            return False
        group.num_left = 0  # no part follows
        for seq in group.unfinished():
            self._state.end(seq, group, "abort", stop_reason)
        return True

    def finish_sequence(
        self,
        seq: Sequence,
        group: SequenceGroup,
        reason: str,
        stop_reason: int | str | None = None,
    ) -> bool:
        """Ends one sequence (a stop string was found); returns whether that ended its group.

        One that has ended only says the new reason: its last token completed the stop string.
        """
        return self._state.end(seq, group, reason, stop_reason)

    def schedule(self, drafts: Drafts | None = None) -> SchedulerOutput:
        """Plans the next step, but does not count its positions as computed yet.

        Args:
            drafts: Guesses to verify in this step, as far as it has room for them.
        """
        assert not self._accepted, "take_accepted must come first"
        out = SchedulerOutput()
        if self.scheduling == "unified":
            share = unified.ALL if self._num_batches == 1 else self._share()
            # While a step runs, an empty one in its wake does no harm.
            unified.schedule(self._state, out, share, waits=not self._advanced)
        else:
            sosp.schedule(self._state, out, mixed=self.scheduling == "sosp-mixed")
        if drafts:
            # A step has as many rows as it can draw tokens; one that draws nothing takes one, too
            num_samples = sum([item.num_samples for item in out.scheduled])
            rest = self._max_samples - max(len(out.scheduled), num_samples)
            add_drafts(self._state, out, drafts, min(self._max_draft_tokens, rest))
        self._scheduled = out.scheduled
        return out

    def _share(self) -> unified.Share:
        """How much of what could be computed the next step takes, so that others have the rest."""
        total, running = self._num_batches, self._state.running
        active = sum([len(group.unfinished()) for group in running])
        free = max(1, total - len(self._advanced))
        waiting = len(self._state.waiting)
        return unified.Share(-(-active // total), -(-waiting // free))

    def can_advance(self) -> bool:
        """Whether the planned step leaves only the values of its tokens unknown.

        Planning ahead must wait for a prompt that forks, for beams (their candidates decide which
        forks), for a group that needs its tokens' values if it is in the next step, for drafts,
        which may be wrong, and in the SOSP modes, which have phases.
        """
        feeds = self._num_batches == 1
        return self.scheduling == "unified" and all(
            [
                not samples
                or (
                    samples == 1
                    and group.beam is None
                    and not (feeds and group.needs_last_token and _is_awaited(seq, group))
                    and not drafts
                )
                for seq, group, _, _, samples, drafts in self._scheduled
            ]
        )

    def advance(self) -> None:
        """Counts the planned step as computed, so that the next can be planned while it runs.

        A sequence's new token is `pending`, unless it is the last that its length allows. A
        sequence that ends early is computed once more by the next step; that token is dropped.
        With several batches no token is pending: the sequence is `in_flight`.

        Each `update` takes the tokens of the first step counted here whose tokens are not known.
        """
        scheduled, self._scheduled = self._scheduled, []
        if scheduled:
            self._advanced.append(scheduled)
        row = 0
        for seq, group, _, num_tokens, num_samples, _ in scheduled:
            if seq.finish_reason is None:
                self._count_computed(seq, group, num_tokens)
                if num_samples and self._num_batches > 1:
                    seq.in_flight = True
                elif num_samples and len(seq.token_ids) + 1 < group.stop.max_len:
                    seq.pending = -(row + 1)
            row += num_samples

    def update(self, sampled: Mapping[int, SequenceOf[Any]]) -> list[SequenceGroup]:
        """Takes the results of a step: the first that `advance` counted, or else the last planned.

        Args:
            sampled: For each seq_id of the step with `num_samples` > 0, that many token ids. For
                a beam: (token id, log-probability) candidates, best first, at least
                `group.beam.num_candidates`, or all possible ones if there are fewer. Of a row with
                drafts: what was drawn before each draft and behind the last one, or the first of
                these, if the others do not count. The first is taken, `take_accepted` takes more.

        Returns:
            The groups that finished now. Sequences that ended since `schedule()` are skipped.
        """
        scheduled, advanced = self._oldest()
        ended: list[SequenceGroup] = []
        for item in scheduled:
            seq, group, _, num_tokens, num_samples, drafts = item
            if seq.finish_reason is not None:
                continue
            if not advanced:
                self._count_computed(seq, group, num_tokens - len(drafts))
            if num_samples == 0:
                continue
            tokens = sampled[seq.seq_id]
            if drafts:
                self._accepted.append((item, accepted(drafts, tokens)))
            if num_samples > 1 or group.beam is not None:
                if take_samples(self._state, seq, group, tokens):
                    ended.append(group)
                continue
            seq.pending, seq.in_flight = 0, False
            if self._append(seq, group, tokens[0]):
                ended.append(group)
        return ended

    def _oldest(self) -> tuple[list[ScheduledSequence], bool]:
        """Takes the step whose results come next, and says whether it was counted as computed."""
        if self._advanced:
            return self._advanced.popleft(), True
        scheduled, self._scheduled = self._scheduled, []
        return scheduled, False

    def take_accepted(self) -> tuple[list[ScheduledSequence], list[SequenceGroup]]:
        """Takes one more token of each row with drafts of which more are accepted.

        Call it after `update`, until it takes none: so each accepted token can be looked at like
        the token of a step, and a sequence that ends at one drops the others. At last the
        sequences give back the blocks that wrong drafts have filled.

        Returns:
            The rows of which it took a token, and the groups that finished now.
        """
        taken, ended = [], []
        for item, tokens in self._accepted:
            seq, group = item.seq, item.group
            if tokens and seq.finish_reason is None:
                taken.append(item)
                seq.num_computed_tokens += 1
                if self._append(seq, group, tokens.pop(0)):
                    ended.append(group)
        if not taken:
            self._trim()
        return taken, ended

    def _append(self, seq: Sequence, group: SequenceGroup, token: int) -> bool:
        """Appends a sampled token; returns whether it ended the group."""
        seq.token_ids.append(token)
        stop = group.stop.check(token, len(seq.token_ids))
        return stop is not None and self._state.end(seq, group, *stop)

    def _trim(self) -> None:
        for item, _ in self._accepted:
            seq, computed = item.seq, item.seq.num_computed_tokens
            self.block_manager.trim(seq.seq_id, computed)
            self.block_manager.register(seq.seq_id, seq.token_ids, computed, item.group.cache_salt)
        self._accepted = []

    def drop_step(self) -> None:
        """Forgets the step that `update` would take; all of its sequences must have ended."""
        self._oldest()

    def drop_steps(self) -> None:
        """Forgets planned steps without results; all their sequences must have ended."""
        self._advanced.clear()
        self._scheduled, self._accepted = [], []

    def clear(self) -> None:
        """Aborts all requests and forgets all cached blocks, after an exception in any method.

        Unlike `abort` it works even if queues and block tables are inconsistent.
        """
        self.drop_steps()
        self._state.clear()

    def recompute_all(self) -> None:
        """Takes all requests' blocks; they are computed again. No step may be planned."""
        assert not self._scheduled and not self._advanced
        self._state.recompute_all()

    def _count_computed(self, seq: Sequence, group: SequenceGroup, num_tokens: int) -> None:
        seq.num_computed_tokens += num_tokens
        if group.num_unattached:
            self._state.attach(group)


def _is_awaited(seq: Sequence, group: SequenceGroup) -> bool:
    """Whether what may follow on the token that a planned step draws is restricted yet."""
    return seq.num_tokens - group.prompt_len + 1 >= group.num_free
