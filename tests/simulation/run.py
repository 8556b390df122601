"""Runs simulations by their seeds, and says what they met."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from tests.simulation.log import EventLog
from tests.simulation.many_threads import ManyThreads
from tests.simulation.simulation import Simulation

Worker = Literal["stub", "tiny"]

# What must have happened at least once in a run of many seeds: else it proves less than it says.
SOMETIMES = (
    "preemption by recompute", "preemption by swap", "swap in", "swap-only step", "copy-on-write",
    "rebuild", "cache hit", "abort in flight", "failed step", "deadline", "refused",
    "no host memory", "pending token", "blocks looked at in the host's memory",
    "a delta behind an abort", "measured costs", "time: a jump", "time: still", "threads",
    "Ctrl-C", "a second Ctrl-C", "engine in use", "leave", "aborted past the loop", "stopped",
    "guess",
)  # fmt: skip


class SimulationFailed(AssertionError):
    """Something did not hold; the message says what, and how to see it again."""


@dataclass(frozen=True)
class Report:
    """What one simulation did.

    Attributes:
        num_steps: Number of steps of the engine.
        seconds: That passed on the simulated clock.
    """

    seed: int
    log: EventLog
    num_steps: int
    seconds: float


@dataclass
class Totals:
    """What many did."""

    num_seeds: int = 0
    num_steps: int = 0
    seconds: float = 0.0
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        self.num_seeds += 1
        self.num_steps += report.num_steps
        self.seconds += report.seconds
        self.seen += report.log.seen

    @property
    def missing(self) -> list[str]:
        """What never happened."""
        return [one for one in SOMETIMES if not self.seen[one]]

    def __str__(self) -> str:
        hours = self.seconds / 3600
        return f"{self.num_seeds} seeds, {self.num_steps} steps, {hours:.0f} simulated hours"


def command(seed: int, worker: Worker) -> str:
    """What replays a seed."""
    return f"python -m tests.simulation --worker {worker} --seed {seed}"


def run_seed(seed: int, worker: Worker = "stub") -> Report:
    """
    Raises:
        SimulationFailed: With the last events and the command that replays the seed.
    """
    kind = ManyThreads if seed % 5 == 4 and worker == "stub" else Simulation
    simulation = kind(seed, worker)
    try:
        simulation.run()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        simulation.log("failed", repr(error))
        last = "\n".join(simulation.log.lines[-12:])
        raise SimulationFailed(f"{last}\nreplay it: {command(seed, worker)}") from error
    return Report(seed, simulation.log, simulation.num_steps, simulation.clock.now)


def run_seeds(
    seeds: Iterable[int],
    worker: Worker = "stub",
    *,
    show: Callable[[str], None] = lambda line: None,
    enough: int | None = None,
) -> Totals:
    """Runs one after the other.

    Args:
        show: Gets a line of progress, now and then.
        enough: Stop after so many seeds if nothing of `SOMETIMES` is missing by then.

    Raises:
        SimulationFailed: At the first seed that fails.
    """
    totals, shown = Totals(), time.monotonic()
    for seed in seeds:
        totals.add(run_seed(seed, worker))
        if time.monotonic() - shown > 2:
            shown = time.monotonic()
            show(f"{totals} (the last: {seed})")
        if enough is not None and totals.num_seeds >= enough and not totals.missing:
            break
    return totals
