"""Distributes the results of a step to its requests."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.beams import candidates_of
from jax_engine.engine.request import Request
from jax_engine.step import StepResult

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

    @property
    def num_generated(self) -> int:
        return self.num_first + len(self.before)


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
    if result.prompt is None and result.hidden is None:
        return
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
