"""Tells a tie from a bug: where two greedy answers part, the tokens must be about as likely.

A server may compute a request in company, or with a part of its prompt cached, by sums in another
order. So log-probabilities differ a little, and where two tokens are nearly as likely either may
be taken; everything behind them differs then, and says nothing.
"""

import json
from collections.abc import Callable
from typing import Any

from paged_conformance.properties import Broken, Lacking, demand
from paged_conformance.server.answers import Choice
from paged_conformance.server.measured import count, largest

MARGIN = 0.25  # of log-probabilities: bfloat16 models of tens of billions stay within it
UNREADABLE = "\ufffd"  # tokens of parts of characters look alike


def part(one: Choice, other: Choice, what: str) -> int | None:
    """Compares two greedy answers of the same prompt, token by token.

    Args:
        what: What the two are, for the message.

    Returns:
        The number of tokens before they part at a tie; None if they do not part.

    Raises:
        Broken: They part where one token is clearly likelier, or a number differs by more than
            rounding can explain.
    """
    for place, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=False)):
        if UNREADABLE in a or UNREADABLE in b:
            return place
        count("greedy tokens compared")
        if a != b:
            gap = max(_gap(one, place, b), _gap(other, place, a))
            demand(
                gap <= MARGIN,
                f"{what}: token {place} is {a!r} and {b!r}, and one of the two is less likely by "
                f"{gap:.3g} in log-probability, which is no tie (at most {MARGIN:g}):\n"
                f"  {one.tokens}\n  {other.tokens}",
            )
            largest("largest margin of a greedy tie", gap)
            return place
        count("greedy tokens equal")
        numbers = one.logprobs[place], other.logprobs[place]
        if None not in numbers:
            far = abs(numbers[0] - numbers[1])  # type: ignore[operator]
            demand(
                far <= MARGIN,
                f"{what}: token {place}, {a!r}, has the log-probabilities {numbers[0]} and "
                f"{numbers[1]}",
            )
            largest("largest difference of a log-probability", far)
    return None


def _gap(answer: Choice, place: int, token: str) -> float:
    """How much less likely than the one taken; the last of those told counts for all others."""
    tops = answer.tops[place] if place < len(answer.tops) else {}
    taken = answer.logprobs[place]
    if not tops or taken is None:
        return 0.0
    return abs(taken - tops.get(token, min(tops.values())))


def near(one: list[float | None], other: list[float | None]) -> bool:
    """Lists of numbers that are the same but for rounding, None in the same places."""
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return all(a is b or (None not in (a, b) and abs(a - b) <= MARGIN) for a, b in pairs)  # type: ignore[operator]


def confirmed(check: Callable[[], None], times: int = 3) -> None:
    """Raises Broken only if a check is broken every time: a tie may fall either way."""
    for turn in range(times):
        try:
            return check()
        except Lacking:
            raise
        except Broken:
            if turn == times - 1:
                raise
    return None


def said(request: dict[str, Any]) -> str:
    """A request as a message shows it."""
    return f"{request['api']} {json.dumps(request['body'])}"
