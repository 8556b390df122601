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
        prompt_tokens: prompt tokens in the cache so far: of the requests that ended, and of those
            that have not. A preemption by recompute takes its own away again.
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
    prompts = sum(
        min(group.prompt_len, max(seq.num_computed_tokens for seq in group.unfinished()))
        for group in scheduler.groups.values()
    )
    generated = sum(one.results.num_generated for one in running.requests.values())
    return EngineState(
        now,
        block_map(scheduler),
        total("vllm:prompt_tokens") + prompts,
        total("vllm:generation_tokens") + generated,
        preemptions["recompute"],
        preemptions["swap"],
    )
