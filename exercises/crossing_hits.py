"""Exercise: a prefix that is found under another adapter.

Keys and values follow from the tokens and from the adapter that the model runs with. The cache
below finds the blocks of a prompt by a chain of hashes, which begins with a *root*: requests with
different roots share nothing. As it is given, `root` heeds the salt of the user alone. So a request
finds blocks that were computed with another adapter, and answers from them.

Write `root(adapter, salt)`. Two requests have one root if, and only if, they have the same salt and
their adapters compute the same. An adapter's name is a label: it may be given to other weights
tomorrow, and two names may be given to the same weights.

Run it: python -m exercises.crossing_hits
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, NamedTuple

from exercises.checking import expect, report
from exercises.variants import given_seed


class Adapter(NamedTuple):
    name: str
    weights: tuple[float, ...]
    scaling: float


def root(adapter: Adapter | None, salt: str | None) -> Hashable:
    return salt  # the bug


Answer = Callable[[Adapter | None, str | None], Hashable]


class Cache:
    """Knows the blocks of two tokens that were computed."""

    def __init__(self) -> None:
        self.known: set[int] = set()

    def compute(self, tokens: Sequence[int], root: Hashable) -> int:
        """Computes a prompt; how many of its tokens were found."""
        chain, found = hash(root), 0
        for start in range(0, len(tokens) - 1, 2):
            chain = hash((chain, *tokens[start : start + 2]))
            found += 2 * (chain in self.known)
            self.known.add(chain)
        return found


class Numbers(NamedTuple):
    """What a seed changes: an adapter's first weight, and the scaling of both."""

    weight: Annotated[float, (5.0, 6.0, 7.0, 8.0)] = 1.0
    scaling: Annotated[float, (0.25, 0.75, 1.5, 2.5)] = 0.5


def check(answer: Answer = root, seed: int = 0) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return report(_test, answer, Numbers, seed)


def _test(answer: Answer, numbers: Numbers) -> None:
    one, scaling = numbers
    pirate, verse = Adapter("pirate", (one, 2.0), scaling), Adapter("verse", (3.0, 4.0), scaling)

    def second(
        one: tuple[Adapter | None, str | None],
        other: tuple[Adapter | None, str | None],
        found: int,
        what: str,
    ) -> None:
        cache, prompt = Cache(), [5, 6, 7, 8, 9]
        cache.compute(prompt, answer(*one))
        expect(cache.compute(prompt, answer(*other)), found, f"tokens found {what}")

    second((None, None), (None, None), 4, "of a prompt that was computed without an adapter before")
    second((pirate, None), (verse, None), 0, "of a prompt that was computed with another adapter")
    second((None, None), (pirate, None), 0, "with an adapter, computed without one before")
    second((pirate, None), (pirate, None), 4, "with the same adapter")
    reloaded = Adapter("pirate", (one, 2.5), scaling)
    second((pirate, None), (reloaded, None), 0, "after a name was given to other weights")
    scaled = Adapter("pirate", (one, 2.0), 1.0)
    second((pirate, None), (scaled, None), 0, "with the same weights and another scaling")
    renamed = Adapter("corsair", (one, 2.0), scaling)
    second((pirate, None), (renamed, None), 4, "with the same weights and scaling under two names")
    second((pirate, "one"), (pirate, "two"), 0, "with the same adapter and another salt")
    second((pirate, "one"), (pirate, "one"), 4, "with the same adapter and salt")
    long = Adapter("pirate", (one, 2.0), float(f"{scaling}5"))
    what = f"with scaling {scaling}5 and salt '', behind {scaling} and '5'"
    second((pirate, "5"), (long, ""), 0, what)


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
