"""Steps in flight: while the device computes one, the host plans and launches the next.

The next step reads the tokens of the one before on the device, so it need not wait for the host
(the slides' lightweight runtime). The host learns one step late that a sequence has ended, which
costs one computed token that is dropped. Outputs are the same with and without look-ahead.

With several stages, which work on different steps, as many steps are in flight. Tokens are drawn in
the last stage, so the first one does not know them: a sequence waits for its token, and the steps
behind are of other sequences, or of the next chunks of prompts.

`take_step` and `take_prompts` distribute the results of a step to its requests.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput, make_step
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.requests.masks import StepMasks, constrained_samples
from jax_engine.engine.requests.request import Request
from jax_engine.engine.results import candidates_of
from jax_engine.host_memory import allocating
from jax_engine.kv_store.stored_blocks import StoredBlocks
from jax_engine.speculation.speculator import Speculator
from jax_engine.step import RequestSetup, Runner, StepResult, Ticket

type SampledRows = list[tuple[ScheduledSequence, int]]


@dataclass(slots=True)
class TakenStep:
    """The requests that got tokens in a step and need further work.

    Attributes:
        streaming: Requests that stream new output, by request id.
        stopped: Ids of requests whose last sequence was ended by a stop string.
        first: Requests that got their first token.
        before: For each token but its sequence's first: when the one before it came.
        num_first: First tokens of sequences; a beam search's are only known at its end.
        accepted: How many drafts were right and kept, by seq_id.
        ended: Requests that ended with one of these.
    """

    streaming: dict[str, Request] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    first: list[Request] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    num_first: int = 0
    accepted: Counter[int] = field(default_factory=Counter)
    ended: list[SequenceGroup] = field(default_factory=list)


def sampled_rows(plan: SchedulerOutput) -> SampledRows:
    """Unfinished sequences that get tokens in a step, each with the row of its first token."""
    sampled, row = [], 0
    for item in plan.scheduled:
        if item.num_samples and item.seq.finish_reason is None:
            sampled.append((item, row))
        row += item.num_draws
    return sampled


def sampled_tokens(
    sampled: SampledRows, result: StepResult, verified: Mapping[int, int]
) -> dict[int, list[Any]]:
    """The input of `Scheduler.update`: token ids of sequences, candidates of beams.

    Args:
        verified: As `StepMasks.verified`.
    """
    tokens: dict[int, list[Any]] = {
        item.seq.seq_id: result.token_ids[row : row + item.num_draws] for item, row in sampled
    }
    for seq_id in verified.keys() & tokens:
        tokens[seq_id] = tokens[seq_id][: verified[seq_id]]
    if result.logprobs is not None:  # always so if there are beams
        tokens |= candidates_of(sampled, result.logprobs)
    return tokens


def take_prompts(
    requests: Mapping[str, Request], plan: SchedulerOutput, result: StepResult
) -> None:
    """Hands prompt log-probabilities and pooled states to the requests that asked for them."""
    row = 0
    for index, item in enumerate(plan.scheduled):
        if item.seq.finish_reason is None:
            requests[item.group.request_id].results.take_prompt(item, index, row, result)
        row += item.num_tokens


def take_step(
    scheduler: Scheduler,
    requests: Mapping[str, Request],
    sampled: SampledRows,
    result: StepResult,
    now: float,
) -> TakenStep:
    """Hands tokens, of which `Scheduler.update` has taken the first ones, to their requests.

    What rows with drafts have drawn beyond those follows as far as it is accepted, one token of
    each sequence at a time.
    """
    taken = TakenStep()
    while sampled:
        _take_round(taken, scheduler, requests, sampled, result, now)
        rows = {item.seq.seq_id: row for item, row in sampled if item.drafts}
        items, ended = scheduler.take_accepted() if rows else ([], [])
        taken.ended += ended
        taken.accepted.update([item.seq.seq_id for item in items])
        sampled = [(item, rows[item.seq.seq_id] + 1) for item in items]
    return taken


def _take_round(
    taken: TakenStep,
    scheduler: Scheduler,
    requests: Mapping[str, Request],
    sampled: SampledRows,
    result: StepResult,
    now: float,
) -> None:
    """Hands over one token a sequence."""
    before = taken.before
    for item, row in sampled:
        seq, group, *_ = item
        request = requests[group.request_id]
        if seq.token_time is None:
            _take_first(taken, request, item, now)
        else:
            before.append(seq.token_time)
            seq.token_time = now
        results = request.results
        if results.every_token and _take_tokens(scheduler, request, item, row, result):
            taken.stopped.append(group.request_id)
        if results.streams:
            taken.streaming[group.request_id] = request


def _take_first(taken: TakenStep, request: Request, item: ScheduledSequence, now: float) -> None:
    """Takes the first tokens of a sequence and its forks, or any tokens of a beam."""
    if request.metrics.first_token_time is None:
        request.metrics.first_token_time = now
        taken.first.append(request)
    if request.results.counts_samples:
        taken.num_first += item.num_samples
        for seq in item.group.seqs[item.seq.index : item.seq.index + item.num_samples]:
            seq.token_time = now


def _take_tokens(
    scheduler: Scheduler,
    request: Request,
    item: ScheduledSequence,
    row: int,
    result: StepResult,
) -> bool:
    """Takes the new tokens of a sequence or its forks; returns whether the request has ended."""
    for i in range(item.num_samples):
        seq = request.group.seqs[item.seq.index + i]
        stopped_by = request.results.take_token(seq, row + i, result)
        if stopped_by is not None:
            scheduler.finish_sequence(seq, request.group, "stop", stopped_by)
    return request.group.finished


@dataclass(frozen=True, slots=True)
class StepInFlight:
    """A step that was launched.

    Attributes:
        plan: The scheduler's decision.
        ticket: The runner's handle of the step.
        planned_at: When it was planned.
        failed: Requests that cannot go on, with the reason (`StepMasks.failed`).
        verified: As `StepMasks.verified`.
    """

    plan: SchedulerOutput
    ticket: Ticket
    planned_at: float
    failed: dict[SequenceGroup, str] = field(default_factory=dict)
    verified: dict[int, int] = field(default_factory=dict)


class StepPipeline:
    """At most two steps at a time: one whose tokens are awaited, and one ahead of it.

    With several stages it is one step for each of them.

    Args:
        look_ahead: If False, each step is planned when the tokens of the one before are known. With
            several stages, guesses (`speculator`) are verified only so.
        speculator: Proposes drafts for steps that are not planned ahead; None for no drafts.
        stored: Blocks that are kept beyond the engine; None: none are.

    Attributes:
        closed: Numbers of requests that the runner may forget with the next step.
        mask_seconds: Time spent on computing allowed tokens (constraints), since the start.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        *,
        look_ahead: bool,
        speculator: Speculator | None = None,
        stored: StoredBlocks | None = None,
    ) -> None:
        self._num_stages = runner.capabilities.max_concurrent_batches
        self.look_ahead = look_ahead and (self._num_stages == 1 or speculator is None)
        self._speculator = speculator
        self._stored = stored
        self.closed: list[int] = []
        self.mask_seconds = 0.0
        self._scheduler = scheduler
        self._runner, self._sizes = runner, runner.capabilities
        self._flight: deque[StepInFlight] = deque()
        self._restart = False
        self._taken_at = 0.0
        self._opened: dict[int, RequestSetup] = {}

    def open(self, setup: RequestSetup) -> None:
        """Announces a request to the runner with the next step."""
        self._opened[setup.number] = setup
        if self._speculator is not None:
            self._speculator.open(setup)

    def close(self, number: int) -> None:
        """Lets the runner forget a request, with the next step."""
        if self._opened.pop(number, None) is None:
            self.closed.append(number)
        if self._speculator is not None:
            self._speculator.close(number)

    def restart(self) -> Literal[True]:
        """Forgets all KV blocks, cached ones too, before the next step is planned.

        Steps in flight are finished first: their KV was valid when they were launched.
        """
        self._restart = True
        if not self._flight:
            self._forget_blocks()
        return True

    @allocating("a step, to which a lower gpu_memory_utilization would leave more,")
    def step(self, now: float) -> tuple[StepInFlight, StepResult]:
        """Returns the next step and its tokens, with which `Scheduler.update` must be called.

        Args:
            now: When the steps are planned that this call plans.

        Raises:
            OutOfMemoryError: The device or the host has too little memory for it.
        """
        flight = self._flight
        # A step all of whose sequences have ended since it was planned gives nothing.
        while flight and all(one.seq.finish_reason is not None for one in flight[0].plan.scheduled):
            flight.popleft()
            self._scheduler.drop_step()
        if not flight:
            self._scheduler.drop_steps()
            if self._restart:
                self._forget_blocks()
            drafts = self._speculator.propose(self._scheduler) if self._speculator else None
            flight.append(self._launch(self._scheduler.schedule(drafts), now))
        current, depth = flight[0], self._depth(flight[0].plan)
        while len(flight) < depth and (ahead := self._launch_ahead(flight[-1].plan, now)):
            flight.append(ahead)
        flight.popleft()
        if depth > 1 and self._speculator and not flight and not self._restart:
            self._speculator.follow(self._scheduler, current.plan, current.ticket)
        result = self._runner.collect(current.ticket)
        if self._speculator:
            self._speculator.read(current.plan)
        return current, result

    def learn(self, plan: SchedulerOutput, accepted: dict[int, int], now: float) -> None:
        """Tells the speculator how many drafts of a step were right, by seq_id.

        Args:
            now: When the step's tokens were taken. From there the next step's time counts.
        """
        before, self._taken_at = self._taken_at, now
        if self._speculator is not None:
            seconds = None if _prompt_tokens(plan) else now - before
            self._speculator.learn(plan.scheduled, accepted, seconds)

    def clear(self) -> None:
        """Forgets all steps after a failure; their requests must have ended."""
        self._flight.clear()
        self._restart = False
        self._opened, self.closed = {}, []
        if self._stored is not None:
            self._stored.clear()
        if self._speculator is not None:
            self._speculator.forget_steps()
        self._runner.recover()

    def _forget_blocks(self) -> None:
        self._restart = False
        self._scheduler.recompute_all()
        self._scheduler.block_manager.reset_prefix_cache()

    def _depth(self, current: SchedulerOutput) -> int:
        """How many steps there may be at once while this one is computed."""
        if not self.look_ahead:
            return 1
        if self._num_stages > 1:
            return self._num_stages
        return 2 if _prompt_tokens(current) <= self._sizes.look_ahead_tokens else 1

    def _launch_ahead(self, plan: SchedulerOutput, now: float) -> StepInFlight | None:
        """Launches the step after this one, if it needs none of the tokens that this one draws."""
        if self._restart or not self._scheduler.can_advance():
            return None
        if self._speculator and self._speculator.waits(plan):
            return None
        self._scheduler.advance()
        ahead = self._scheduler.schedule()
        if ahead.is_empty:
            return None
        step = self._launch(ahead, now)
        # Without rows all sequences wait for their tokens; the step may still move blocks.
        return step if ahead.scheduled else None

    def _launch(self, plan: SchedulerOutput, now: float) -> StepInFlight:
        masked = any([item.group.constraints is not None for item in plan.scheduled])
        parts = constrained_samples(plan) if masked else []
        opened, closed = list(self._opened.values()), self.closed
        blocks = self._scheduler.block_manager
        unread = self._speculator.unread(plan) if self._speculator is not None else None
        step = make_step(plan, blocks, opened, closed, masked=bool(parts), unread=unread)
        self._opened, self.closed = {}, []
        if self._stored is not None:
            self._stored.before_step(plan)
        ticket = self._runner.launch(step)
        if self._stored is not None:
            self._stored.after_step()
        if not parts:
            return StepInFlight(plan, ticket, now)
        masks = StepMasks(parts, len(step.samples), self._sizes.vocab_size)
        allowed = masks.allowed()
        processed = masks.process(lambda: self._runner.logits(ticket), allowed)
        self._runner.sample(ticket, allowed, processed)
        self.mask_seconds += masks.seconds
        return StepInFlight(plan, ticket, now, masks.failed, masks.verified)


def _prompt_tokens(plan: SchedulerOutput) -> int:
    """Number of prompt tokens in a step: all but its drafts and one of each sequence."""
    drafts = sum([len(item.drafts) for item in plan.scheduled])
    return plan.num_batched_tokens - len(plan.scheduled) - drafts
