"""The systems to compare, and the rate that each can sustain."""

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.paper.traces import Lengths, trace
from reference.baselines import FasterTransformerServer, OrcaServer
from reference.cost_model import TABLE_1, StepCost
from reference.simulated_paging import PagedServer
from reference.simulator import Report, Server, Usage, simulate

SYSTEMS = {
    "vLLM": "vLLM",
    "oracle": "Orca (Oracle)",
    "pow2": "Orca (Pow2)",
    "max": "Orca (Max)",
    "ft": "FasterTransformer",
}
FOOT = (0.5, 0.65, 0.8, 0.9)
"""Shares of the rate sustained that are looked at, too: straight lines from fewer would cross."""
ALLOWED_LATENCY_S = 0.5
"""Normalised latency, in seconds a token, up to which a rate counts as sustained."""
COST_ASSUMPTION = (
    "A step's time is linear in tokens, sequences and context (reference/cost_model.py): "
    "data-sheet bandwidth x 0.8 and FLOPS x 0.5 of the A100; 0.3 ms of host time for each sequence "
    "(none for FasterTransformer), chosen so that vLLM's batches match the paper's rates."
)
RATE_ASSUMPTION = (
    f"The rate sustained is the highest with a mean normalised latency of {ALLOWED_LATENCY_S} s a "
    "token or less, found by bisection to 4 %."
)


def build(name: str, model: str, **options: object) -> tuple[Server, StepCost]:
    """A fresh server, and what its steps cost; `options` are PagedServer's."""
    on = TABLE_1[model]
    if name == "vLLM":
        block_size = int(str(options.get("block_size", 16)))
        return PagedServer(on.num_slots, **options), on.step_cost(block_size=block_size)  # type: ignore[arg-type]
    if name == "ft":
        return FasterTransformerServer(on.num_slots), on.step_cost(paged=False, host=False)
    return OrcaServer(on.num_slots, name), on.step_cost(paged=False)  # type: ignore[arg-type]


@dataclass
class Load:
    """A kind of requests for one model, for so many seconds.

    Attributes:
        seconds: How long requests arrive; what has arrived is served to its end.
        paged: Options of the paged server.
    """

    model: str
    lengths: Lengths
    seconds: float
    num_samples: int = 1
    prefix_len: int = 0
    beam_search: bool = False
    paged: dict[str, object] = field(default_factory=dict)

    def run(self, name: str, rate: float) -> Report:
        """One system at one rate."""
        requests = trace(
            self.lengths,
            rate,
            self.seconds,
            num_samples=self.num_samples,
            prefix_len=self.prefix_len,
            beam_search=self.beam_search,
        )
        server, cost = build(name, self.model, **(self.paged if name == "vLLM" else {}))
        return simulate(requests, server, cost)

    def curve(self, name: str, start: float) -> tuple[float, dict[float, float]]:
        """The rate that a system sustains, and normalised latencies by rate."""
        return sustained(lambda rate: self.run(name, rate).normalised_latency, start)


def sustained(latency: Callable[[float], float], start: float) -> tuple[float, dict[float, float]]:
    """The highest rate with a latency that is allowed, and all that was looked at.

    Doubles or halves from `start` until the rate is bracketed, then bisects.
    """
    seen: dict[float, float] = {}

    def holds(rate: float) -> bool:
        seen[rate] = latency(rate)
        return seen[rate] <= ALLOWED_LATENCY_S

    low, high = (start, start * 1.4) if holds(start) else (start / 1.4, start)
    while low not in seen and not holds(low):
        low, high = low / 1.4, low
    while high not in seen and holds(high):
        low, high = high, high * 1.4
    while high / low > 1.04:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    for share in FOOT:
        holds(share * low)
    return low, seen


def during(**seconds: float) -> str:
    """How long the traces are, and what follows from that."""
    times = ", ".join(f"{name} {length / 60:g} minutes" for name, length in seconds.items())
    return (
        f"Arrivals for so long: {times} (the paper: an hour, OPT-175B 15 minutes). The shorter, "
        "the less a rate that is too high is felt, so rates come out up to a tenth too high."
    )


def when_full(report: Report) -> Usage:
    """Averages while a request waited for memory; over all of the time if that was rare."""
    full = report.crowded.seconds > 0.1 * report.always.seconds
    return report.crowded.usage if full else report.always.usage


BEAM_ASSUMPTION = (
    "The scores of a beam search follow Zipf's law: the r-th best token has a share of r^-s, s "
    "drawn from [1, 3] for each beam and step. No output ends before the length of the trace."
)
FULL_ASSUMPTION = (
    "The average covers only steps in which a request waits for memory; if these are under a tenth "
    "of the run, it covers the whole run."
)
