"""What an engine does at this moment, to be shown: the block map, and tokens for rates."""

from dataclasses import dataclass

from jax_engine.core.block_map import BlockMap, block_map
from jax_engine.core.scheduler import Scheduler
from jax_engine.engine.running_requests import RunningRequests


@dataclass(frozen=True, slots=True)
class EngineState:
    """One moment of an engine.

    Attributes:
        time: seconds of the engine's clock.
        prompt_tokens: of the requests that got their first token, and what is in the cache of the
            others. A preemption or an abort takes an other's away again.
        generated_tokens: tokens sampled so far.
        num_recomputed: preemptions by recompute.
        num_swapped_out: preemptions by swap.
    """

    time: float
    map: BlockMap
    prompt_tokens: int
    generated_tokens: int
    num_recomputed: int
    num_swapped_out: int


def engine_state(scheduler: Scheduler, running: RunningRequests, now: float) -> EngineState:
    """The state between two steps. It is counted now: nothing is kept for it while nobody asks."""
    total = running.recorder.total
    preemptions = scheduler.num_preemptions
    requests = running.requests.values()
    prompts = sum(  # the others' were counted with their first token
        min(one.group.prompt_len, max(seq.num_computed_tokens for seq in one.group.unfinished()))
        for one in requests
        if one.metrics.first_token_time is None
    )
    beams = [one.results for one in requests if not one.results.counts_samples]
    generated = sum(one.num_generated for one in beams)  # these are counted at their end
    return EngineState(
        now,
        block_map(scheduler),
        total("prompt_tokens") + prompts,
        total("generation_tokens") + generated,
        preemptions["recompute"],
        preemptions["swap"],
    )
