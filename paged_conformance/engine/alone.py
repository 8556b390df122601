"""What a request gives alone, on an engine that has served nobody: all else is compared with it."""

import json
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from paged_conformance.engine.streams import Streams, drain
from paged_conformance.properties import demand

KEPT = 20_000  # results that are kept for the next examples
ONLY_FOR_OTHERS = ("priority", "kind")  # parameters without a meaning for a request that is alone
_RESULTS: WeakKeyDictionary[Any, dict[str, list["Result"]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Result:
    """One finished sample. `logprobs` and `top` are None where the engine gives none."""

    token_ids: list[int]
    text: str | None
    logprobs: list[float] | None
    top: list[Any] | None
    finish_reason: str | None


numbers: dict[str, float] = {
    "tokens compared": 0,
    "share of equal tokens": 1.0,
    "ties": 0,
    "largest difference of log-probabilities": 0.0,
}
"""What comparisons have seen, for the report: ties are no failures, but they are counted."""


def _count(num_compared: int, num_equal: int) -> None:
    before = numbers["tokens compared"]
    equal = numbers["share of equal tokens"] * before + num_equal
    numbers["tokens compared"] = before + num_compared
    numbers["share of equal tokens"] = equal / max(1, before + num_compared)


def alone(make: Any, mode: dict[str, Any], prompt: list[int], params: dict[str, Any]) -> Any:
    """The results of each sample of this request, as a list[Result].

    Args:
        mode: Arguments of `make`: without limits, so that nothing is in the request's way.
    """
    params = {name: value for name, value in params.items() if name not in ONLY_FOR_OTHERS}
    key = json.dumps([mode, prompt, params], sort_keys=True)
    try:
        known = _RESULTS.setdefault(make, {})
    except TypeError:  # it can neither be hashed nor referred to weakly
        known = {}
    if key not in known:
        if len(known) > KEPT:
            known.clear()
        known[key] = _run(make, mode, prompt, params)
    return known[key]


def _run(
    make: Any, mode: dict[str, Any], prompt: list[int], params: dict[str, Any]
) -> list[Result]:
    engine = make(**mode)
    if "logprobs" in getattr(make, "capabilities", ()):
        params = params | {"logprobs": max(2, params.get("logprobs", 0))}
    streams = Streams(make)
    engine.add(id="alone", prompt=prompt, params=params)
    streams.begin("alone", prompt, params)
    drain(engine, streams)
    return results(streams.ended["alone"])


def results(samples: dict[int, Any]) -> list[Result]:
    return [
        Result(one.token_ids, one.text, one.logprobs, one.top, one.finish_reason)
        for _, one in sorted(samples.items())
    ]


def compare(make: Any, name: str, expected: Result, got: Result) -> None:
    """Raises Broken where tokens differ and it is no tie, or log-probabilities are far apart.

    A prefix suffices if `got` was aborted.
    """
    tie = getattr(make, "sizes", {}).get("tie_millionths", 1000) / 1e6
    first = _first_difference(expected.token_ids, got.token_ids)
    _compare_logprobs(name, expected, got, first, 10 * tie)
    aborted = got.finish_reason in ("abort", None)  # an engine may say nothing of an abort
    if first == len(got.token_ids) and (aborted or first == len(expected.token_ids)):
        _count(first, first)
        same = aborted or got.finish_reason == expected.finish_reason
        demand(same, f"{name} ended by {got.finish_reason}, alone by {expected.finish_reason}")
        text = got.text is None or expected.text is None or aborted or got.text == expected.text
        demand(text, f"{name} says {got.text!r}, alone {expected.text!r}")
        return
    _count(len(expected.token_ids), first)
    if _is_tie(expected, got, first, tie):
        numbers["ties"] += 1
        return
    demand(
        False,
        f"{name} got {got.token_ids} ({got.finish_reason}), alone it gets {expected.token_ids} "
        f"({expected.finish_reason}): they part at token {first}, which is no tie",
    )


def _first_difference(one: list[int], other: list[int]) -> int:
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def _compare_logprobs(name: str, expected: Result, got: Result, end: int, limit: float) -> None:
    if expected.logprobs is None or got.logprobs is None:
        return
    pairs = zip(expected.logprobs[:end], got.logprobs[:end], strict=True)
    for place, (a, b) in enumerate(pairs):
        largest = "largest difference of log-probabilities"
        numbers[largest] = max(numbers[largest], abs(a - b))
        demand(
            abs(a - b) <= limit * (1 + abs(a)),
            f"{name}: token {place} has log-probability {b:.5f}, alone {a:.5f}; tokens were equal",
        )


def _is_tie(expected: Result, got: Result, place: int, tie: float) -> bool:
    """Whether both tokens were as probable: by the margin alone, or by what both runs say."""
    if place >= min(len(expected.token_ids), len(got.token_ids)):
        return False
    if expected.top is not None and len(expected.top[place]) > 1:
        probable = {int(token): logprob for token, logprob in expected.top[place]}
        best, taken = max(probable.values()), probable.get(got.token_ids[place])
        return taken is not None and best - taken <= tie
    if expected.logprobs is not None and got.logprobs is not None:
        return abs(expected.logprobs[place] - got.logprobs[place]) <= tie
    return False
