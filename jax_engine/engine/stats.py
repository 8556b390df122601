"""Gauges and counters of an engine: queues, KV blocks, preemptions."""

from dataclasses import dataclass

from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import SchedulerOutput
from jax_engine.step import PreemptionCosts


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Current queues and blocks, and counters since the engine was built.

    Attributes:
        num_waiting: Requests not yet running, or preempted by recompute.
        num_running: Requests whose KV is on the device.
        num_swapped: Requests whose KV is in host memory.
        num_blocks: KV blocks in all; used + free.
        num_used_blocks: Referenced by at least one sequence.
        num_shared_blocks: Referenced by more than one.
        num_logical_blocks: Blocks of all block tables: used blocks if nothing were shared.
        num_free_blocks: Referenced by none (they may hold cached prefixes).
        num_cached_blocks: Findable by the prefix cache, used or free.
        peak_used_blocks: The most blocks used in any step.
        peak_shared_blocks: The most blocks shared in any step.
        mean_sharing_saving: Share of the blocks that sharing saved, in [0, 1): 1 - used / logical
            blocks, both summed over all steps (Figure 15 of the paper).
        peak_sharing_saving: The largest of any step.
        num_steps: Steps run.
        num_tokens: Tokens computed, recomputed ones included.
        num_recomputed: Preemptions by recompute.
        num_swapped_out: Preemptions by swap.
        preemption_costs: The costs that preemption_mode="auto" compares; None before the first
            preemption.
        guided_seconds: Host time spent on computing allowed tokens (constraints), most of it while
            the device computes.
    """

    num_waiting: int
    num_running: int
    num_swapped: int
    num_blocks: int
    num_used_blocks: int
    num_shared_blocks: int
    num_logical_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    peak_used_blocks: int
    peak_shared_blocks: int
    mean_sharing_saving: float
    peak_sharing_saving: float
    num_steps: int
    num_tokens: int
    num_recomputed: int
    num_swapped_out: int
    preemption_costs: PreemptionCosts | None
    guided_seconds: float = 0.0


class StatsRecorder:
    """Counts step by step; reads gauges from the scheduler on demand."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._num_steps = 0
        self._num_tokens = 0
        self._peak_used = 0
        self._peak_shared = 0
        self._sum_used = 0
        self._sum_logical = 0
        self._peak_saving = 0.0

    def record(self, plan: SchedulerOutput) -> None:
        """Call after a step ran and before its finished sequences free their blocks."""
        blocks = self._scheduler.block_manager
        self._num_steps += 1
        self._num_tokens += plan.num_batched_tokens
        used, logical = blocks.num_used_gpu_blocks, blocks.num_logical_blocks
        self._sum_used += used
        self._sum_logical += logical
        self._peak_saving = max(self._peak_saving, _saving(used, logical))
        self._peak_used = max(self._peak_used, used)
        self._peak_shared = max(self._peak_shared, blocks.num_shared_blocks)

    def now(self) -> EngineStats:
        scheduler, blocks = self._scheduler, self._scheduler.block_manager
        preemptions = scheduler.num_preemptions
        return EngineStats(
            num_waiting=len(scheduler.waiting),
            num_running=len(scheduler.running),
            num_swapped=len(scheduler.swapped),
            num_blocks=blocks.num_gpu_blocks,
            num_used_blocks=blocks.num_used_gpu_blocks,
            num_shared_blocks=blocks.num_shared_blocks,
            num_logical_blocks=blocks.num_logical_blocks,
            num_free_blocks=blocks.num_free_gpu_blocks,
            num_cached_blocks=blocks.num_cached_blocks,
            peak_used_blocks=self._peak_used,
            peak_shared_blocks=self._peak_shared,
            mean_sharing_saving=_saving(self._sum_used, self._sum_logical),
            peak_sharing_saving=self._peak_saving,
            num_steps=self._num_steps,
            num_tokens=self._num_tokens,
            num_recomputed=preemptions["recompute"],
            num_swapped_out=preemptions["swap"],
            preemption_costs=scheduler.preemption_costs,
        )


def _saving(used: int, logical: int) -> float:
    return 1.0 - used / logical if logical else 0.0
