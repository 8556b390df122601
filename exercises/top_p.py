"""Exercise: the boundary of top-p.

Of the tokens, ordered by probability, top-p keeps the smallest set of most probable ones whose
probabilities together reach p. Put so that ties are clear: a token is kept if and only if the
tokens *strictly* more probable than it have less than p together. So the token that crosses the
boundary is kept, and so are its equals; and at least one token always is.

Write `keep_top_p(probabilities, p)`: the ids of the tokens kept, in any order.

Run it: python -m exercises.top_p
"""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from exercises.checking import expect, report, returned
from exercises.variants import given_seed

Keep = Callable[[Sequence[float], float], list[int]]


def keep_top_p(probabilities: Sequence[float], p: float) -> list[int]:
    raise NotImplementedError


class Numbers(NamedTuple):
    """What a seed changes: p of the first case, and how many equals the tail has there."""

    p: Annotated[float, (0.55, 0.65, 0.7)] = 0.6
    tail: Annotated[int, (4, 8, 16)] = 2


def check(answer: Keep = keep_top_p, seed: int = 0) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return report(_test, answer, Numbers, seed)


def _test(answer: Keep, numbers: Numbers) -> None:
    p, tail = numbers
    falling = [0.5, 0.25, *[0.25 / tail] * tail]

    def kept(probabilities: list[float], p: float, wanted: list[int], why: str) -> None:
        found = sorted(map(int, returned(answer(probabilities, p), "keep_top_p")))
        expect(found, wanted, f"ids kept of {probabilities} with p = {p} ({why})")

    kept(falling, p, [0, 1], f"the second token crosses {p}, and is kept")
    turned = [*falling[2:], 0.5, 0.25]
    kept(turned, p, [tail, tail + 1], "ids are not in order of probability")
    kept(falling, 0.5, [0], "0.5 is reached by the first token alone")
    kept(falling, 0.78, [*range(tail + 2)], "the third token crosses, the fourth equals it")
    kept([0.25, 0.25, 0.25, 0.25], 0.1, [0, 1, 2, 3], "all are equals")
    kept([0.75, 0.25], 0.01, [0], "one token is always kept")
    kept([0.5, 0.25, 0.25], 1.0, [0, 1, 2], "p = 1 keeps all")


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
