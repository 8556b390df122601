"""A request of a benchmark: what is asked of the server, when it is sent, and what becomes of it.

Requests are sent all at once, or at random times with a given rate. An outcome records when a
request was sent, when the pieces of its answer came, and how it ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import isinf
from typing import Any

import msgspec
import numpy as np


@dataclass(frozen=True)
class BenchmarkRequest:
    """A request of a benchmark.

    Attributes:
        prompt: text, or token ids where the server takes them (completions).
        num_prompt: tokens of the prompt.
        output_len: tokens to generate.
    """

    prompt: str | list[int]
    num_prompt: int
    output_len: int


@dataclass(frozen=True)
class Target:
    """Where requests go, and what all of them say.

    Attributes:
        chat: the URL takes conversations, and a prompt is the user's one message.
        extra: further fields of each request.
        headers: HTTP headers of each request.
    """

    url: str
    model: str
    chat: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self, ask: BenchmarkRequest) -> bytes:
        """A request's body."""
        if self.chat:
            prompt: dict[str, Any] = {"messages": [{"role": "user", "content": ask.prompt}]}
            limit = "max_completion_tokens"
        else:
            prompt, limit = {"prompt": ask.prompt}, "max_tokens"
        options = {"stream": True, "stream_options": {"include_usage": True}}
        fields = {"model": self.model, **prompt, limit: ask.output_len, **options, **self.extra}
        return msgspec.json.encode(fields)


def arrival_times(
    count: int, rate: float, burstiness: float, rng: np.random.Generator
) -> list[float]:
    """Seconds from the start for each request, in order; the last one is at `count / rate`.

    So runs of one rate take the same time, whatever is drawn.

    Args:
        rate: requests a second; infinite: all at 0.
        burstiness: shape of the gamma distribution of the times between two requests. 1: a Poisson
            process; less: more bursts; infinite: all times are equal.
    """
    if isinf(rate):
        return [0.0] * count
    gaps = np.ones(count) if isinf(burstiness) else rng.gamma(burstiness, size=count)
    times = np.cumsum(gaps)
    return (times * (count / rate / times[-1])).tolist()  # type: ignore[no-any-return]


class _Choice(msgspec.Struct):
    """Only that there is one counts; what it says is not read."""


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


@dataclass
class Outcome:
    """One request, seen by its client.

    Attributes:
        sent: when the request was sent, in seconds of the client's clock.
        arrived: when each piece of output came, on the same clock.
        num_prompt: tokens of the prompt: as the client counts, then as the server says.
        num_output: tokens that came: as the server says, else a token for each piece.
        error: why there is no whole answer; None if there is.
        waited: seconds for which the client held it back (`--max-concurrency`).
    """

    sent: float
    num_prompt: int = 0
    num_output: int = 0
    arrived: list[float] = field(default_factory=list)
    error: str | None = None
    waited: float = 0.0

    @property
    def time_to_first(self) -> float:
        """TTFT, in seconds."""
        return self.arrived[0] - self.sent

    @property
    def latency(self) -> float:
        """Seconds until the last piece."""
        return self.arrived[-1] - self.sent

    @property
    def between(self) -> list[float]:
        """ITL: seconds between pieces."""
        return [later - earlier for earlier, later in pairwise(self.arrived)]

    @property
    def per_token(self) -> float:
        """TPOT: seconds for each token behind the first one; 0 if there is none."""
        rest = self.num_output - 1
        return (self.latency - self.time_to_first) / rest if rest > 0 else 0.0


class EventReader:
    """Reads a stream of server-sent events, in whatever parts it comes, into an `Outcome`."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._rest = b""
        self._done = False

    def feed(self, data: bytes, now: float) -> None:
        """Takes bytes that came at `now`."""
        *events, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data:"):
                    self._take(line[5:].strip(), now)

    def _take(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        outcome, event = self._outcome, _decode(data)
        if event.error is not None:
            outcome.error = outcome.error or msgspec.json.encode(event.error).decode()
        if event.choices:
            outcome.arrived.append(now)
        if event.usage is not None:
            outcome.num_prompt = event.usage.prompt_tokens or outcome.num_prompt
            outcome.num_output = event.usage.completion_tokens or outcome.num_output

    def end(self) -> None:
        """The stream has ended: whether it was whole is known now."""
        outcome = self._outcome
        outcome.num_output = outcome.num_output or len(outcome.arrived)
        if outcome.error is None and not self._done:
            outcome.error = "the stream ended before [DONE]"
        if outcome.error is None and not outcome.arrived:
            outcome.error = "the answer has no tokens"
