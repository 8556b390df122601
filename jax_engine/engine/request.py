"""A request as the engine keeps it, from its check until its last output."""

from dataclasses import dataclass, field

from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.pooling import PooledResults
from jax_engine.engine.prompts import Prompt
from jax_engine.engine.results import FinalResults
from jax_engine.outputs import AnyRequestOutput, RequestMetrics
from jax_engine.sampling_params import SamplingParams


@dataclass(slots=True, eq=False)
class Request:
    """One request. It is built once, by `RequestChecks`, and can be accepted once.

    Attributes:
        prompt: Parsed and truncated.
        params: The request's own copy: the caller may change the original.
        group: The request as the scheduler sees it, with its id and its sequences.
        results: What it has produced, and how that is returned.
        arrival_time: In seconds of the engine's clock; None: when it is accepted.
        timeout: In seconds after its arrival; None: no limit.
        metrics: When it arrived, got its first token and finished.
    """

    prompt: Prompt
    params: SamplingParams
    group: SequenceGroup
    results: FinalResults | PooledResults
    arrival_time: float | None = None
    timeout: float | None = None
    metrics: RequestMetrics = field(default_factory=lambda: RequestMetrics(0.0))

    @property
    def request_id(self) -> str:
        """Unique among unfinished requests."""
        return self.group.request_id

    @property
    def last_token_time(self) -> float | None:
        """When the last token of its output came; None if there is none."""
        if not self.results.counts_samples:  # all come at the end
            return self.metrics.finished_time if self.results.num_generated else None
        times = [one.token_time for one in self.group.seqs if one.token_time is not None]
        return max(times, default=None)

    def serve_as(
        self,
        request_id: str,
        *,
        arrival_time: float | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Sets its id, priority and times, which `check_service` has checked."""
        self.group.request_id, self.group.priority = request_id, priority
        self.arrival_time, self.timeout = arrival_time, timeout

    def arrive(self, now: float) -> float:
        """Sets and returns its arrival time, by the engine's clock: `now` if it has none."""
        arrival = now if self.arrival_time is None else self.arrival_time
        self.group.arrival_time = self.metrics.arrival_time = arrival
        return arrival

    def output(self, *, finished: bool) -> AnyRequestOutput:
        """Its next output; `finished` says that it is the last one."""
        return self.results.output(self.metrics, finished=finished)
