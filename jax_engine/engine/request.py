"""A request as the engine keeps it, from its check until its last output."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.assembler import Assembler
from jax_engine.engine.pieces import News
from jax_engine.engine.pooling import PooledResults
from jax_engine.engine.prompts import Prompt
from jax_engine.engine.results import Results
from jax_engine.lora.request import LoRARequest
from jax_engine.outputs import AnyRequestOutput, PoolingRequestOutput, RequestMetrics
from jax_engine.sampling_params import SamplingParams
from jax_engine.tokenization.tokenizer import Tokenizer


@dataclass(slots=True, eq=False)
class Request:
    """One request. It is built once, by `RequestChecks`, and can be accepted once.

    Attributes:
        prompt: Parsed and truncated.
        params: The request's own copy: the caller may change the original.
        group: The request as the scheduler sees it, with its id and its sequences.
        results: What it has produced that is not in its news yet.
        tokenizer: The engine's, for outputs that are made here.
        lora: What it says of its adapter, which `group` has; None: it has none.
        order: Its number among the requests of several engines, which its seed comes from if it
            has none; None: its engine counts.
        arrival_time: In seconds of the engine's clock; None: when it is accepted.
        timeout: In seconds after its arrival; None: no limit.
        metrics: When it arrived, got its first token and finished.
    """

    prompt: Prompt
    params: SamplingParams
    group: SequenceGroup
    results: Results | PooledResults
    tokenizer: Tokenizer | None
    lora: LoRARequest | None = None
    order: int | None = None
    arrival_time: float | None = None
    timeout: float | None = None
    metrics: RequestMetrics = field(default_factory=lambda: RequestMetrics(0.0))
    _assembler: Assembler | None = None

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

    def news(self, *, finished: bool) -> News | PoolingRequestOutput:
        """What is new since the last news; `finished` says that these are the last."""
        return self.results.news(self.metrics, finished=finished)

    def output(self, news: News | PoolingRequestOutput) -> AnyRequestOutput:
        """The output that its next news make, for a reader in this process."""
        if isinstance(news, PoolingRequestOutput):
            return news
        if self._assembler is None:  # a reader in another process has one of its own
            arrival, tokenizer = self.metrics.arrival_time, self.tokenizer
            self._assembler = Assembler(
                self.request_id, self.prompt, self.params, tokenizer, arrival, self.lora
            )
        self._assembler.take(news)
        return self._assembler.read()


type RequestNews = tuple[Request, News | PoolingRequestOutput]


def is_last(news: News | PoolingRequestOutput) -> bool:
    """Whether no other news of the request follow.

    The one output of a pooling request is its last, even if it was cut short.
    """
    return isinstance(news, PoolingRequestOutput) or news.finished


def outputs_of(updates: Iterable[RequestNews]) -> list[AnyRequestOutput]:
    """The outputs that new news of requests make."""
    return [request.output(news) for request, news in updates]
