"""What surrounds a runner in a simulation: work takes time, may fail, and is counted."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from jax_engine.core.decoding import Drafts
from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import SchedulerOutput
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.step import PreemptionCosts, Step
from jax_engine.worker.preemption_costs import measure_costs
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
        step: Cost of each step.
        token: Cost of each of its tokens.
        block: Cost of each block that is moved between the device and the host.
        jitter: Added to a step, or to a move of blocks: up to so many.
    """

    step: int
    token: int
    block: int
    jitter: int


class SimulatedDevice:
    """Either worker, as the engine sees it: a `Runner`.

    Args:
        cache: The worker's cache, with the names of the engine's `KVCache`.
        max_model_len, num_cpu_blocks: The simulated engine's settings.
        lose_cache: Has the worker's cache go down with a step, as it does when a step that it was
            donated to fails.

    Attributes:
        in_flight: Tickets of steps that were launched and not collected, with the steps.
        pause: Called while the device computes: other threads may go on.
    """

    def __init__(
        self,
        worker: Any,
        cache: Any,
        max_model_len: int,
        num_cpu_blocks: int,
        clock: SimulatedClock,
        faults: Faults,
        speed: Speed,
        chance: Random,
        log: EventLog,
        lose_cache: Callable[[], None],
    ) -> None:
        self.worker = worker
        self.capabilities = replace(worker.capabilities, num_cpu_blocks=num_cpu_blocks)
        self.pause: Callable[[], None] = lambda: None
        self.in_flight: list[tuple[Any, Step]] = []
        self._cache = cache
        self._max_model_len = max_model_len
        self._clock = clock
        self._faults = faults
        self._speed = speed
        self._chance = chance
        self._log = log
        self._lose_cache = lose_cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)

    def watch(self, scheduler: Scheduler) -> None:
        """Faults strike where a request is added, and what is planned is counted."""
        add_group, schedule = scheduler.add_group, scheduler.schedule

        def watched_add(group: SequenceGroup) -> None:
            self._faults.strike("before a request is added")
            add_group(group)
            self._faults.strike("after a request was added")

        def watched_schedule(drafts: Drafts | None = None) -> SchedulerOutput:
            plan = schedule(drafts)
            for _, mode in plan.preempted:
                self._log.seen[f"preemption by {mode}"] += 1
            rebuilt = [item for item in plan.scheduled if item.group.forked and item.num_tokens > 1]
            self._log.seen["rebuild"] += len(rebuilt)
            self._log.seen["guess"] += sum(len(item.drafts) for item in plan.scheduled)
            return plan

        scheduler.add_group, scheduler.schedule = watched_add, watched_schedule  # type: ignore[method-assign]

    def launch(self, step: Step) -> Any:
        self._faults.strike("before launch" if step.rows else "before moves")
        self._note(step)
        ticket = self.worker.launch(step)
        if not step.rows:
            return ticket
        self.in_flight.append((ticket, step))
        try:
            self._faults.strike("after launch")
        except BaseException:
            if self._chance.random() < 0.5:
                self._lose_cache()
            raise
        return ticket

    def collect(self, ticket: Any) -> Any:
        [step] = [step for one, step in self.in_flight if one is ticket]
        num_tokens = sum(len(row.tokens) for row in step.rows)
        self.spend(self._speed.step + self._speed.token * num_tokens)
        self.pause()
        self.in_flight = [pair for pair in self.in_flight if pair[0] is not ticket]
        self._faults.strike("before collect")
        result = self.worker.collect(ticket)
        self._faults.strike("after collect")
        return result

    def measure_costs(self) -> PreemptionCosts:
        """As the engine's own worker does it, by the simulated clock."""
        steps: Any = SimulatedSteps()
        cache: Any = SimulatedCache(self._cache, self)
        return measure_costs(self, steps, cache, self._max_model_len, self._clock)

    def moved(self, pairs: Pairs) -> None:
        """Blocks were moved between the device and the host."""
        if pairs:
            self.spend(self._speed.block * len(pairs))

    def spend(self, ticks: int) -> None:
        self._clock.advance(ticks + self._chance.randint(0, self._speed.jitter))

    def _note(self, step: Step) -> None:
        seen, moves = self._log.seen, step.moves
        self.moved(moves.swap_in + moves.swap_out)
        seen["copy-on-write"] += bool(moves.copy)
        seen["swap in"] += bool(moves.swap_in)
        seen["swap-only step"] += bool((moves.swap_in or moves.swap_out) and not step.rows)
        seen["pending token"] += sum(row.tokens[-1] < 0 for row in step.rows)


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
