"""Drafters that are right as often as they should be."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.support.strategies import VOCABULARY


@dataclass(frozen=True)
class Guesses:
    """At most `count` tokens; of ten of them `wrong` are not what `follows`, by chance.

    A draft behind a wrong one is what follows that.
    """

    count: int
    wrong: int
    seed: int = 0

    def __call__(self, token_ids: Sequence[int], follows: Callable[[list[int]], int]) -> list[int]:
        tokens = list(token_ids)
        for i in range(self.count):
            chance = (len(token_ids) * 7919 + i * 104_729 + self.seed * 1_299_709) // 11 % 10
            tokens.append((follows(tokens) + (chance < self.wrong)) % VOCABULARY)
        return tokens[len(token_ids) :]


def guesses() -> st.SearchStrategy[Guesses]:
    """From none at all, over garbage, to perfect ones."""
    return st.builds(
        Guesses,
        st.sampled_from([0, 1, 2, 3, 5, 20]),
        st.sampled_from([0, 0, 1, 3, 6, 10]),
        st.integers(0, 50),
    )


def from_known(known: Sequence[Sequence[int]]) -> Callable[[list[int]], int]:
    """What came next in the first of these sequences that begins so; anything if none does."""

    def follows(token_ids: list[int]) -> int:
        for one in known:
            if len(one) > len(token_ids) and list(one[: len(token_ids)]) == token_ids:
                return one[len(token_ids)]
        return len(token_ids) % VOCABULARY

    return follows
