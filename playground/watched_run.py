"""A run whose invariants are checked at every step."""

from collections.abc import Sequence

from playground.breaks import System
from playground.invariants import check_memory, check_plan
from reference.admission import AdmissionError
from reference.scheduler_state import ScheduledSequence, SchedulerOutput
from reference.sequence import SequenceGroup
from reference.trace_run import Run
from reference.trace_scenarios import Scenario


class WatchedRun(Run):
    """`refused` has, by request, why it was not accepted.

    `planned` and `write` raise `invariants.Fell`.
    """

    def __init__(self, scenario: Scenario, system: System) -> None:
        super().__init__(
            scenario,
            block_manager=system.block_manager,
            scheduler=system.scheduler,
            memory=system.memory,
        )
        self.refused: dict[str, str] = {}
        self.output = SchedulerOutput()
        plan = self.scheduler.schedule

        def schedule() -> SchedulerOutput:
            self.output = plan()
            check_plan(self, self.output)
            return self.output

        self.scheduler.schedule = schedule  # type: ignore[method-assign]

    def arrivals(self, step: int) -> list[SequenceGroup]:
        """As in `Run`, less those that are refused."""
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
