"""Exercise 6: the boundary of top-p.

Of the tokens, ordered by probability, top-p keeps the smallest set of most probable ones whose
probabilities together reach p. Put so that ties are clear: a token is kept if and only if the
tokens *strictly* more probable than it have less than p together. So the token that crosses the
boundary is kept, and so are its equals; and at least one token always is.

Write `keep_top_p(probabilities, p)`: the ids of the tokens kept, in any order.

Run it: python -m exercises.top_p
"""

from collections.abc import Callable, Sequence

import numpy as np

from exercises.checking import expect, report, returned

Keep = Callable[[Sequence[float], float], list[int]]


def keep_top_p(probabilities: Sequence[float], p: float) -> list[int]:
    raise NotImplementedError


def check(answer: Keep = keep_top_p) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return report(_test, answer)


def _test(answer: Keep) -> None:
    def kept(probabilities: list[float], p: float, wanted: list[int], why: str) -> None:
        found = np.sort(returned(answer(probabilities, p), "keep_top_p")).tolist()
        expect(found, wanted, f"ids kept of {probabilities} with p = {p} ({why})")

    kept([0.5, 0.25, 0.125, 0.125], 0.6, [0, 1], "the second token crosses 0.6, and is kept")
    kept([0.125, 0.5, 0.125, 0.25], 0.6, [1, 3], "ids are not in order of probability")
    kept([0.5, 0.25, 0.125, 0.125], 0.5, [0], "0.5 is reached by the first token alone")
    kept(
        [0.5, 0.25, 0.125, 0.125],
        0.8,
        [0, 1, 2, 3],
        "the third token crosses, the fourth equals it",
    )
    kept([0.25, 0.25, 0.25, 0.25], 0.1, [0, 1, 2, 3], "all are equals")
    kept([0.75, 0.25], 0.01, [0], "one token is always kept")
    kept([0.5, 0.25, 0.25], 1.0, [0, 1, 2], "p = 1 keeps all")


if __name__ == "__main__":
    check()
