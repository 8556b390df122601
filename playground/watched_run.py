"""A run whose invariants are checked at every step."""

from collections.abc import Mapping, Sequence
from typing import Any

from playground.breaks import System
from playground.invariants import Fell, check_memory, check_outcome, check_plan
from playground.trace_run import Run
from playground.trace_scenarios import Scenario
from reference.admission import AdmissionError
from reference.scheduler_state import ScheduledSequence, SchedulerOutput
from reference.sequence import SequenceGroup

GOES_ON = ("I18", "I29")
"""Nothing is wrong in memory where one of these falls: the run goes on, and shows what it costs."""


class WatchedRun(Run):
    """`scheduler.schedule`, `scheduler.update` and `write` raise `invariants.Fell`.

    Attributes:
        refused: by request, why it was not accepted.
        noted: the first of `GOES_ON` that fell, with which the run went on.
        preempted: the step in which the request that it names was preempted, if it was.
        step: the one that the run is in.
    """

    def __init__(self, scenario: Scenario, system: System) -> None:
        super().__init__(
            scenario,
            block_manager=system.block_manager,
            scheduler=system.scheduler,
            memory=system.memory,
        )
        self.refused: dict[str, str] = {}
        self.noted: Fell | None = None
        self.preempted: int | None = None
        self.step = 0
        self.output = SchedulerOutput()
        plan, take_in = self.scheduler.schedule, self.scheduler.update

        def schedule() -> SchedulerOutput:
            self.output = plan()
            if self.noted is not None and self.noted.who in dict(self.output.preempted):
                self.preempted = self.preempted or self.step
            try:
                check_plan(self, self.output)
            except Fell as fell:
                if fell.invariant not in GOES_ON:
                    raise
                self.noted = self.noted or fell
            return self.output

        def update(sampled: Mapping[int, Sequence[Any]]) -> list[SequenceGroup]:
            ended = take_in(sampled)
            check_outcome(self)
            return ended

        self.scheduler.schedule = schedule  # type: ignore[method-assign]
        self.scheduler.update = update  # type: ignore[method-assign]

    def arrivals(self, step: int) -> list[SequenceGroup]:
        """As in `Run`, less those that are refused."""
        self.step = step
        accepted = []
        for request in self.scenario.requests:
            if request.step == step:
                try:
                    accepted.append(self._add(request))
                except AdmissionError as error:
                    self.refused[request.name] = str(error)
        return accepted

    def write(self, scheduled: Sequence[ScheduledSequence]) -> None:
        """As in `Run`; then memory is looked at."""
        super().write(scheduled)
        check_memory(self, self.output)
