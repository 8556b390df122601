"""Serving under a cost model: an hour of requests in seconds, without a model (6.1).

What the paper measures (how many requests fit, how long they wait, which memory is wasted) follows
from the decisions of the scheduler and of the block manager, and from how long a step takes. Here
the decisions are real, taken by a `Server`, and the time is counted by a `StepCost`. Beside the
real `Scheduler` (`simulated_paging`) there are the systems that the paper compares with
(`baselines`).

The loop is the engine's: take in who has arrived, take a step, move the clock on.

>>> from reference.baselines import OrcaServer
>>> from reference.cost_model import StepCost
>>> trace = [TraceRequest(0.0, 100, 3), TraceRequest(0.0, 200, 1), TraceRequest(9.0, 10, 2)]
>>> report = simulate(trace, OrcaServer(1024, "oracle"), StepCost(1.0, 0.01))
>>> [round(x, 2) for x in report.latencies]    # a step of 300 tokens: 4 s; then 1.01 s each
[6.02, 4.0, 2.11]
>>> round(report.normalised_latency, 3)        # seconds a token, the mean over requests (6.1)
2.354

Most steps of a long trace are all alike: the same sequences decode one token more. As long as
nobody arrives, ends or lacks a block, nothing is decided in them, so a server may say how many
such steps follow (`num_alike`) and do them at once (`skip`). That is what makes an hour of trace
cheap, and it changes nothing: `simulate(..., skip=False)` gives the same report.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from reference.cost_model import StepCost, Work


@dataclass(frozen=True)
class TraceRequest:
    """One request of a trace.

    Attributes:
        arrival: Seconds after the start of the trace.
        prompt_len, output_len: Tokens. Outputs have the length of the trace, whatever the model.
        num_samples: Outputs to draw from the prompt, all as long.
        prefix_len: So many first tokens of the prompt are the same for all requests.
        beam_search: The samples are the beams of a search.
    """

    arrival: float
    prompt_len: int
    output_len: int
    num_samples: int = 1
    prefix_len: int = 0
    beam_search: bool = False


@dataclass(frozen=True)
class Usage:
    """What the slots (tokens) of the KV cache are used for, as in Figure 2, and by how many.

    Attributes:
        stored: Slots that hold a token's key and value.
        reserved: Kept for tokens that will come.
        internal: Kept for tokens that will never come (over-provisioning, or rest of a block).
        other: In nobody's hands, or lost in the allocator's rounding.
        requests: Running.
        logical, physical: Blocks in tables, counted once a table and once in all (Figure 15).
    """

    stored: float = 0.0
    reserved: float = 0.0
    internal: float = 0.0
    other: float = 0.0
    requests: float = 0.0
    logical: float = 0.0
    physical: float = 0.0

    def mean_until(self, last: "Usage", steps: int) -> "Usage":
        """The mean over so many steps after this one, growing evenly to what it is at `last`."""
        share = (steps + 1) / (2 * steps)
        pairs = zip(vars(self).items(), vars(last).values(), strict=True)
        return Usage(**{name: one + share * (other - one) for (name, one), other in pairs})


@dataclass(frozen=True)
class Done:
    """A step that was made: what it cost, who ended with it, what the memory held during it."""

    work: Work
    ended: list[int]
    usage: Usage


class Server(Protocol):
    """Who decides what a step computes. Requests are known by their numbers in the trace."""

    @property
    def busy(self) -> bool:
        """Is any request unfinished?"""

    @property
    def crowded(self) -> bool:
        """Is somebody waiting whom the last step could not take in?"""

    @property
    def accepts(self) -> bool:
        """Would one more request in the queue make a difference to the next step?"""

    def add(self, number: int, request: TraceRequest) -> None:
        """Put a request into the queue."""

    def step(self) -> Done:
        """Make one step."""

    def num_alike(self) -> int:
        """After a step: how many more would decode the same sequences, and end none of them."""

    def peek(self) -> Work:
        """What the first of them would cost."""

    def skip(self, steps: int) -> Done:
        """Make so many of them: the work of the first, the mean usage of all."""


@dataclass
class Mean:
    """Averages over time."""

    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, seconds: float, usage: Usage) -> None:
        self.seconds += seconds
        for name, value in vars(usage).items():
            self.sums[name] = self.sums.get(name, 0.0) + seconds * value

    @property
    def usage(self) -> Usage:
        """The average; all zero of an empty time."""
        return Usage(**{name: total / self.seconds for name, total in self.sums.items()})


@dataclass
class Report:
    """What a simulation saw.

    Attributes:
        latencies: From arrival to the last token, by request, in seconds.
        output_lens: Output lengths of the requests, in the same order.
        always: Averages over the time in which anything ran.
        crowded: Averages over the time in which somebody had to wait for memory.
        clock: When the last request ended.
        num_steps: Steps taken, those skipped over included.
    """

    latencies: list[float]
    output_lens: list[int]
    always: Mean = field(default_factory=Mean)
    crowded: Mean = field(default_factory=Mean)
    clock: float = 0.0
    num_steps: int = 0

    @property
    def normalised_latency(self) -> float:
        """Mean over requests of latency divided by output length, in seconds a token (6.1)."""
        pairs = zip(self.latencies, self.output_lens, strict=True)
        return sum(latency / length for latency, length in pairs) / len(self.latencies)

    def count(self, seconds: float, steps: int, usage: Usage, crowded: bool) -> None:
        """Move the clock over some steps with this (mean) usage."""
        self.clock += seconds
        self.num_steps += steps
        self.always.add(seconds, usage)
        if crowded:
            self.crowded.add(seconds, usage)


def simulate(
    trace: Iterable[TraceRequest], server: Server, cost: StepCost, *, skip: bool = True
) -> Report:
    """Serve a trace, in order of arrival, to its last token."""
    requests = list(trace)
    report = Report([0.0] * len(requests), [request.output_len for request in requests])
    arrivals = deque(enumerate(requests))
    while arrivals or server.busy:
        if not server.busy:
            report.clock = max(report.clock, arrivals[0][1].arrival)
        while arrivals and arrivals[0][1].arrival <= report.clock and server.accepts:
            server.add(*arrivals.popleft())
        done = server.step()
        report.count(cost.seconds(done.work), 1, done.usage, server.crowded)
        for number in done.ended:
            report.latencies[number] = report.clock - requests[number].arrival
        if skip:
            _skip(server, cost, report, arrivals[0][1].arrival if arrivals else None)
    return report


def _skip(server: Server, cost: StepCost, report: Report, next_arrival: float | None) -> None:
    """Do the steps that are sure to be like the last one, up to the next arrival."""
    steps = server.num_alike()
    if steps > 0 and next_arrival is not None and not server.crowded:
        steps = steps_that_start_before(next_arrival - report.clock, steps, server.peek(), cost)
    if steps > 0:
        done = server.skip(steps)
        report.count(cost.seconds(done.work, steps), steps, done.usage, server.crowded)


def steps_that_start_before(deadline: float, steps: int, work: Work, cost: StepCost) -> int:
    """The most of these steps of which the last begins before the deadline, by bisection."""
    if deadline <= 0:
        return 0
    least, most = 1, steps
    while least < most:
        middle = (least + most + 1) // 2
        if cost.seconds(work, middle - 1) < deadline:
            least = middle
        else:
            most = middle - 1
    return least
