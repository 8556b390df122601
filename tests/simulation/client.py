"""One accepted request as its client sees it: what came, and what may come."""

from dataclasses import dataclass, field
from typing import Any

from jax_engine import RequestOutputKind
from tests.simulation.model import Sample, letter
from tests.simulation.requests import Request


@dataclass
class Received:
    """What a client has of one sample."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    end: tuple[str, Any] | None = None


@dataclass
class Client:
    """
    Attributes:
        samples: How each sample must come out.
        born: Number of the first list of outputs that it may be in.
        arrival: When it came, in seconds; None: whenever the engine says.
        may_be_aborted: Whether somebody asked for that.
        has_text: Whether outputs have text.
        mailed: Whether its end comes to a `Call`, not from `step`.
    """

    request_id: str
    request: Request
    samples: list[Sample]
    born: int
    arrival: float | None
    has_text: bool
    mailed: bool
    may_be_aborted: bool = False
    ended: bool = False
    received: dict[int, Received] = field(default_factory=dict)
    first_token_time: float | None = None

    @property
    def kind(self) -> RequestOutputKind:
        return self.request.params.output_kind

    @property
    def deadline(self) -> float | None:
        timeout = self.request.timeout
        return None if timeout is None or self.arrival is None else self.arrival + timeout

    def take(self, output: Any, now: float) -> None:
        """An output of this request, each in its order.

        Args:
            now: When the last step began, in seconds: the deadlines until then have passed.
        """
        assert not self.ended, f"{self.request_id}: an end is told once, and last"
        assert output.prompt_token_ids == self.request.prompt
        assert self.kind is not RequestOutputKind.FINAL_ONLY or output.finished
        for one in output.outputs:
            self._take_sample(one)
        self._check_times(output.metrics)
        if output.finished:
            self._end(now)

    def _take_sample(self, one: Any) -> None:
        wanted, got = self.samples[one.index], self.received.setdefault(one.index, Received())
        if self.kind is RequestOutputKind.DELTA:
            assert one.token_ids or one.finish_reason, "a delta without anything new"
            assert got.end is None, "a sample's end is told once, and last"
            got.tokens += one.token_ids
            got.text += one.text
        else:
            assert one.token_ids[: len(got.tokens)] == got.tokens and one.text.startswith(got.text)
            got.tokens, got.text = one.token_ids, one.text
        where = f"{self.request_id}, sample {one.index}"
        assert got.tokens == wanted.tokens[: len(got.tokens)], (
            f"{where}: {got.tokens} for {wanted.tokens}"
        )
        if one.finish_reason == "abort":  # what was held back for a stop string has come, too
            text = "".join(letter(token) for token in got.tokens)
            assert not self.has_text or got.text == text, f"{where}: {got.text!r} for {text!r}"
        else:
            assert wanted.text.startswith(got.text), f"{where}: {got.text!r} for {wanted.text!r}"
        if one.finish_reason is not None:
            got.end = one.finish_reason, one.stop_reason

    def _check_times(self, metrics: Any) -> None:
        assert self.arrival in (None, metrics.arrival_time)
        self.arrival = metrics.arrival_time
        if any(got.tokens for got in self.received.values()):
            first = metrics.first_token_time
            assert first is not None and self.first_token_time in (None, first)
            self.first_token_time = first
        times = (metrics.first_token_time, metrics.finished_time)
        known = [time for time in times if time is not None]
        assert known == sorted(known)

    def _end(self, now: float) -> None:
        """All samples have come, or somebody, or the deadline, has ended the rest."""
        self.ended = True
        reasons = {got.end for got in self.received.values()}
        assert None not in reasons, f"{self.request_id}: a sample has no end"
        aborted = any(end is not None and end[0] == "abort" for end in reasons)
        for index, got in self.received.items():
            assert got.end is not None
            if got.end[0] != "abort":
                wanted = self.samples[index]
                assert (got.tokens, got.end) == (wanted.tokens, wanted.end), self.request_id
                assert not self.has_text or got.text == wanted.text
        if ("abort", "timeout") in reasons:
            assert self.deadline is not None and self.deadline <= now, "it had time yet"
        elif aborted:
            assert self.may_be_aborted, f"{self.request_id}: nobody aborted it"
        else:
            assert sorted(self.received) == list(range(len(self.samples))), "a sample is missing"
