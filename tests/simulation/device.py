"""What surrounds a worker in a simulation: work takes time, may fail, and is counted."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from jax_engine.core.output import SchedulerOutput
from jax_engine.worker.step_shape import StepShape, step_shape
from tests.simulation.clock import SimulatedClock
from tests.simulation.faults import Faults
from tests.simulation.log import EventLog

MEASURED_SIZES = (32, 64)  # tokens of a prompt's step
type Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Speed:
    """What work on a device costs, in ticks.

    Attributes:
        step: Of each step.
        token: Of each of its tokens.
        block: Of each block that is moved between the device and the host.
        jitter: Added to a step, or to a move of blocks: up to so many.
    """

    step: int
    token: int
    block: int
    jitter: int


class SimulatedDevice:
    """Either worker, as the engine sees it.

    Args:
        lose_cache: Has the worker's cache go down with a step, as it does when a step that it was
            donated to fails.

    Attributes:
        in_flight: Steps that were launched and not collected.
        pause: Called while the device computes: other threads may go on.
    """

    def __init__(
        self,
        worker: Any,
        clock: SimulatedClock,
        faults: Faults,
        speed: Speed,
        chance: Random,
        log: EventLog,
        lose_cache: Callable[[], None],
    ) -> None:
        self.worker = worker
        self.kv_cache = SimulatedCache(worker.kv_cache, self)
        self.steps = SimulatedSteps()
        self.pause: Callable[[], None] = lambda: None
        self.in_flight: list[Any] = []
        self._clock = clock
        self._faults = faults
        self._speed = speed
        self._chance = chance
        self._log = log
        self._lose_cache = lose_cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)

    def add_request(self, request_id: Any, *args: Any) -> None:
        if isinstance(request_id, str):
            self._faults.strike("before a request is added")
        self.worker.add_request(request_id, *args)
        if isinstance(request_id, str):
            self._faults.strike("after a request was added")

    def launch(self, output: SchedulerOutput, blocks: Any, before: Any = None) -> Any:
        self._faults.strike("before launch")
        self._note(output)
        step = self.worker.launch(output, blocks, before)
        self.in_flight.append(step)
        try:
            self._faults.strike("after launch")
        except BaseException:
            if self._chance.random() < 0.5:
                self._lose_cache()
            raise
        return step

    def move_blocks(self, output: SchedulerOutput) -> None:
        self._faults.strike("before moves")
        self._note(output)
        self.worker.move_blocks(output)

    def collect(self, step: Any) -> Any:
        num_tokens = sum(item.num_tokens for item in step.plan.scheduled)
        self.spend(self._speed.step + self._speed.token * num_tokens)
        self.pause()
        self.in_flight = [one for one in self.in_flight if one is not step]
        self._faults.strike("before collect")
        result = self.worker.collect(step)
        self._faults.strike("after collect")
        return result

    def moved(self, pairs: Pairs) -> None:
        """Blocks were moved between the device and the host."""
        if pairs:
            self.spend(self._speed.block * len(pairs))

    def spend(self, ticks: int) -> None:
        self._clock.advance(ticks + self._chance.randint(0, self._speed.jitter))

    def _note(self, output: SchedulerOutput) -> None:
        seen, swaps = self._log.seen, output.blocks_to_swap_in + output.blocks_to_swap_out
        self.moved(swaps)
        seen["copy-on-write"] += bool(output.blocks_to_copy)
        seen["swap in"] += bool(output.blocks_to_swap_in)
        seen["swap-only step"] += bool(swaps and not output.scheduled)
        for _, mode in output.preempted:
            seen[f"preemption by {mode}"] += 1
        for item in output.scheduled:
            seen["rebuild"] += item.group.forked and item.num_tokens > 1
            seen["pending token"] += item.seq.pending < 0


class SimulatedSteps:
    """The compiled steps that `measure_costs` finds: always the same, whatever has run before."""

    def compiled_shapes(self) -> list[StepShape]:
        return [step_shape(size, 1, 1) for size in MEASURED_SIZES]

    def has(self, shape: StepShape) -> bool:
        return shape in self.compiled_shapes()


class SimulatedCache:
    """The worker's cache where somebody else than its steps moves blocks: to measure the cost."""

    def __init__(self, cache: Any, device: SimulatedDevice) -> None:
        self._cache = cache
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def swap_in(self, pairs: Pairs) -> None:
        self._cache.swap_in(pairs)
        self._device.moved(pairs)

    def swap_out(self, pairs: Pairs) -> None:
        self._cache.swap_out(pairs)
        self._device.moved(pairs)
