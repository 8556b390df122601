"""From what a step computed to the requests that it computed it for."""

from collections.abc import Mapping

from jax_engine.core.output import ScheduledSequence, SchedulerOutput
from jax_engine.core.scheduler import Scheduler
from jax_engine.engine.request_state import RequestState
from jax_engine.worker.worker import StepResult


def sampled_rows(plan: SchedulerOutput) -> list[tuple[ScheduledSequence, int]]:
    """What gets tokens in a step, and the row of its first; not what ended since it was planned."""
    sampled, row = [], 0
    for item in plan.scheduled:
        if item.num_samples and item.seq.finish_reason is None:
            sampled.append((item, row))
        row += item.num_samples
    return sampled


def take_prompts(
    states: Mapping[str, RequestState], plan: SchedulerOutput, result: StepResult
) -> None:
    """Hands what was computed of prompts to the requests that asked for it."""
    if result.prompt is None and result.pooled is None:
        return
    row = 0
    for index, item in enumerate(plan.scheduled):
        if item.seq.finish_reason is None:
            states[item.group.request_id].take_prompt(item, index, row, result)
        row += item.num_tokens


def take_tokens(
    scheduler: Scheduler,
    state: RequestState,
    item: ScheduledSequence,
    row: int,
    result: StepResult,
) -> bool:
    """Looks at the new tokens of one sequence (of its forks); True if all has now ended."""
    for i in range(item.num_samples):
        seq = state.group.seqs[item.seq.index + i]
        stopped_by = state.add_token(seq, row + i, result.logprobs)
        if stopped_by is None:
            continue
        if seq.finish_reason is None:
            scheduler.finish_sequence(seq.seq_id, "stop", stopped_by)
        else:  # its last token completed the stop string
            seq.finish("stop", stopped_by)
    return state.group.finished
