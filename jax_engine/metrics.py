"""What `LLM.get_metrics` gives: vLLM's kinds of metrics."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Metric:
    """
    Attributes:
        name: vLLM's.
        labels: Of which model, and of one name the one or the other.
    """

    name: str
    labels: dict[str, str]


@dataclass
class Counter(Metric):
    """What only grows."""

    value: int


@dataclass
class Vector(Metric):
    """Counters by position; nothing here is one, but programs ask whether it is."""

    values: list[int]


@dataclass
class Gauge(Metric):
    """What goes up and down."""

    value: float


@dataclass
class Histogram(Metric):
    """Observations.

    Attributes:
        count: How many.
        sum: Of their values.
        buckets: Upper limit, as text, to how many were at most that; "+Inf" has them all.
    """

    count: int
    sum: float
    buckets: dict[str, int]


@dataclass
class Observations:
    """Counts of a histogram while they grow; `limits` are the buckets', smallest first."""

    limits: Sequence[float]
    counts: list[int] = field(init=False)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.limits) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.limits, value)] += 1
        self.sum += value

    def histogram(self, name: str, labels: dict[str, str]) -> Histogram:
        buckets, total = {}, 0
        names = [*(str(float(limit)) for limit in self.limits), "+Inf"]
        for limit, count in zip(names, self.counts, strict=True):
            total += count
            buckets[limit] = total
        return Histogram(name, labels, total, self.sum, buckets)
