"""The metrics that `LLM.get_metrics` returns, of the same kinds as vLLM's."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Metric:
    """
    Attributes:
        name: vLLM's name.
        labels: The model, and labels that tell metrics of one name apart.
    """

    name: str
    labels: dict[str, str]


@dataclass
class Counter(Metric):
    """A number that only grows."""

    value: int


@dataclass
class Vector(Metric):
    """Counters by position, 0 first."""

    values: list[int]


@dataclass
class Gauge(Metric):
    """A number that goes up and down."""

    value: float


@dataclass
class Histogram(Metric):
    """A distribution of observed values.

    Attributes:
        count: Number of values.
        sum: Sum of the values.
        buckets: Upper limit, as text, to the number of values at most that; "+Inf" counts all.
    """

    count: int
    sum: float
    buckets: dict[str, int]


@dataclass
class Observations:
    """A histogram that is being filled; `limits` are its buckets' upper limits, ascending."""

    limits: Sequence[float]
    counts: list[int] = field(init=False)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.limits) + 1)

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.limits, value)] += times
        self.sum += value * times

    def histogram(self, name: str, labels: dict[str, str]) -> Histogram:
        buckets, total = {}, 0
        names = [*(str(float(limit)) for limit in self.limits), "+Inf"]
        for limit, count in zip(names, self.counts, strict=True):
            total += count
            buckets[limit] = total
        return Histogram(name, labels, total, self.sum, buckets)
