"""What must hold of the outputs of any request, whatever its tokens are; and when it must end."""

import math
import time
from dataclasses import dataclass, field
from typing import Any

from paged_conformance.properties import Refused, demand

REASONS = ("stop", "length", "abort", "error")
PATIENCE = 10.0  # seconds without an output in which a busy engine counts as hung
QUIET_STEPS = 10_000  # or as many steps


@dataclass
class Sample:
    """What has been told of one sample."""

    token_ids: list[int] = field(default_factory=list)
    text: str | None = None
    logprobs: list[float] | None = None
    top: list[Any] | None = None
    finish_reason: str | None = None


@dataclass
class Request:
    prompt: list[int]
    params: dict[str, Any]
    samples: dict[int, Sample]
    wrong: bool = False  # it should have been refused: it must end, no more

    @property
    def is_over(self) -> bool:
        return all(one.finish_reason is not None for one in self.samples.values())


class Streams:
    """Keeps what an engine tells of its requests. Raises Broken at the first output that is wrong.

    Attributes:
        live: Requests that have not ended, by name.
        ended: The samples of those that have, by the name's latest use.
        aborted: Names whose end by an abort has not been told.
    """

    def __init__(self, make: Any) -> None:
        self.sizes: dict[str, int] = getattr(make, "sizes", {})
        self.live: dict[str, Request] = {}
        self.ended: dict[str, dict[int, Sample]] = {}
        self.aborted: dict[str, Request] = {}

    def begin(
        self, name: str, prompt: list[int], params: dict[str, Any], *, wrong: bool = False
    ) -> None:
        samples = {index: Sample() for index in range(1 if wrong else params.get("n", 1))}
        self.live[name] = Request(prompt, params, samples, wrong)

    def abort(self, names: list[str]) -> None:
        for name in names:
            if name in self.live:
                self.aborted[name] = self.live.pop(name)
                self.ended[name] = self.aborted[name].samples

    def take(self, outputs: list[Any]) -> None:
        for output in outputs:
            name = output["id"]
            request = self.live.get(name) or self.aborted.get(name)
            demand(request is not None, f"an output of {name!r}, which is not running: {output}")
            assert request is not None
            if request.wrong:
                if output["finish_reason"] is not None:
                    self.live.pop(name, None)
                continue
            self._take(name, request, output)
            if request.is_over:
                self.ended[name] = request.samples
                self.live.pop(name, None)
                self.aborted.pop(name, None)

    def _take(self, name: str, request: Request, output: Any) -> None:
        index, reason = output["index"], output["finish_reason"]
        demand(index in request.samples, f"{name} has no sample {index}: {output}")
        sample, params = request.samples[index], request.params
        where = f"sample {index} of {name}"
        demand(sample.finish_reason is None, f"{where} had ended, and got more: {output}")
        goes_on = name in self.aborted and reason is None
        demand(not goes_on, f"{where} was aborted, and it goes on: {output}")
        if reason == "abort" and name in self.aborted and not output["token_ids"]:
            sample.finish_reason = reason
            return
        for kept in ("token_ids", "text", "logprobs", "top"):
            new = output.get(kept)
            if new is None:
                continue
            before = getattr(sample, kept)
            if params.get("kind") == "delta":
                new = new if before is None else before + new
            elif before is not None and kept in ("token_ids", "text"):
                demand(
                    new[: len(before)] == before,
                    f"{where}: {kept} was {before!r} and became {new!r}",
                )
            setattr(sample, kept, new)
        sample.finish_reason = reason
        _check(where, request, sample, self.sizes)
        if reason == "abort":
            demand(name in self.aborted, f"{where} ended by an abort that nobody asked for")


def _check(where: str, request: Request, sample: Sample, sizes: dict[str, int]) -> None:
    """One sample as it is now."""
    params, tokens = request.params, sample.token_ids
    vocabulary, longest = sizes.get("vocabulary"), params["max_tokens"]
    inside = vocabulary is None or all(0 <= token < vocabulary for token in tokens)
    demand(inside, f"{where}: {tokens} has tokens outside of a vocabulary of {vocabulary}")
    demand(len(tokens) <= longest, f"{where}: {len(tokens)} tokens of at most {longest}")
    over = sample.finish_reason is not None
    _check_logprobs(where, sample, params)
    stops = ends(params, sizes)
    late = [token for token in tokens[params.get("min_tokens", 0) : -1] if token in stops]
    demand(not late, f"{where} goes on behind token {late[:1]}, which ends it: {tokens}")
    text = sample.text or ""
    for stop in params.get("stop", ()):
        hidden = params.get("include_stop") or params.get("min_tokens", 0) or stop not in text
        demand(bool(hidden), f"{where}: its text {text!r} has the stop string {stop!r}")
    if over:
        _check_end(where, request, sample, sizes)


def ends(params: dict[str, Any], sizes: dict[str, int]) -> set[int]:
    """The tokens that end a sample."""
    eos = sizes.get("eos", -1)
    own = set() if params.get("ignore_eos") or eos < 0 else {eos}
    return own | set(params.get("stop_token_ids", ()))


def _check_end(where: str, request: Request, sample: Sample, sizes: dict[str, int]) -> None:
    params, tokens, reason = request.params, sample.token_ids, sample.finish_reason
    demand(reason in REASONS, f"{where} ended by {reason!r}, which is none of {REASONS}")
    demand(reason != "error", f"{where} ended by an error")
    if reason == "stop":
        by_token = bool(tokens) and tokens[-1] in ends(params, sizes)
        demand(by_token or bool(params.get("stop")), f"{where}: nothing stopped {tokens}")
        enough = len(tokens) >= params.get("min_tokens", 0)
        demand(enough, f"{where} stopped with {len(tokens)} tokens, before min_tokens")
    if reason == "length":
        full = len(request.prompt) + len(tokens) >= sizes.get("max_len", math.inf)
        demand(
            len(tokens) == params["max_tokens"] or full,
            f"{where} ended by its length with {len(tokens)} of {params['max_tokens']} tokens",
        )
        demand(
            not tokens or tokens[-1] not in ends(params, sizes) or _in_doubt(params, tokens),
            f"{where}: its last token {tokens[-1:]} ends it, and it says that its length did",
        )


def _in_doubt(params: dict[str, Any], tokens: list[int]) -> bool:
    """At the last token that is allowed, engines differ in which of two reasons they name."""
    most, least = int(params["max_tokens"]), int(params.get("min_tokens", 0))
    return len(tokens) >= most or len(tokens) <= least


def _check_logprobs(where: str, sample: Sample, params: dict[str, Any]) -> None:
    tokens, logprobs, top = sample.token_ids, sample.logprobs, sample.top
    if logprobs is not None:
        demand(
            len(logprobs) == len(tokens),
            f"{where}: {len(logprobs)} log-probabilities of {len(tokens)} tokens",
        )
        sane = all(math.isfinite(one) and one <= 1e-3 for one in logprobs)
        demand(sane, f"{where}: no log-probabilities: {logprobs}")
    if top is None:
        return
    demand(len(top) == len(tokens), f"{where}: {len(top)} lists for {len(tokens)} tokens")
    for place, entry in enumerate(top):
        names, values = [token for token, _ in entry], [value for _, value in entry]
        demand(len(set(names)) == len(names), f"{where}: token {place} lists one twice: {entry}")
        demand(values == sorted(values, reverse=True), f"{where}: {entry} is not in order")
        total = sum(math.exp(value) for value in values)
        demand(total <= 1.001, f"{where}: probabilities of token {place} add up to {total:.4f}")
        demand(
            len(entry) >= params.get("logprobs", 0),
            f"{where}: {len(entry)} log-probabilities at token {place}, wanted {params}",
        )
        if logprobs is not None and tokens[place] in names:
            said = values[names.index(tokens[place])]
            same = abs(said - logprobs[place]) <= 1e-3
            demand(same, f"{where}: token {place} has two log-probabilities: {entry}")


def drain(engine: Any, streams: Streams) -> None:
    """Steps until the engine is idle. Raises Broken if it hangs, or forgets a request."""
    patience = streams.sizes.get("patience", PATIENCE)
    most = streams.sizes.get("quiet_steps", QUIET_STEPS)
    quiet, end = 0, time.monotonic() + patience
    while engine.is_busy():
        outputs = engine.step()
        streams.take(outputs)
        if outputs:
            quiet, end = 0, time.monotonic() + patience
            continue
        quiet += 1
        demand(
            quiet <= most and time.monotonic() <= end,
            f"busy, and no output in {quiet} steps; unfinished: {sorted(streams.live)}",
        )
    forgotten = sorted(streams.live)
    demand(not forgotten, f"the engine is idle, and these have not ended: {forgotten}")
    streams.aborted.clear()


def add(engine: Any, streams: Streams, name: str, prompt: list[int], params: Any) -> bool:
    """Whether the request was accepted."""
    try:
        engine.add(id=name, prompt=prompt, params=params)
    except Refused:
        return False
    streams.begin(name, prompt, params)
    return True
