"""Drafters that are right as often as they should be, and what a sequence may leave in a cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.support.strategies import VOCABULARY, Settings, settings


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


MAX_DRAFTS = st.sampled_from([8, 40, 3, 1])
"""The most draft tokens that all sequences of a step may have together."""


def guesses() -> st.SearchStrategy[Guesses]:
    """From none at all, over garbage, to perfect ones."""
    return st.builds(
        Guesses,
        st.sampled_from([3, 5, 20, 1, 2, 0]),
        st.sampled_from([0, 0, 1, 2, 4, 10]),
        st.integers(0, 50),
    )


@st.composite
def drafting_settings(draw: st.DrawFn) -> Settings:
    """Unified engines in which most sequences can have some tokens, so that there are guesses."""
    chosen, least = draw(settings("unified")), draw(st.sampled_from([16, 24, 2]))
    more = max(0, least - chosen.max_model_len)
    return replace(
        chosen,
        max_model_len=chosen.max_model_len + more,
        max_num_batched_tokens=chosen.max_num_batched_tokens + more,
        num_gpu_blocks=max(chosen.num_gpu_blocks, 4 + least // chosen.block_size),
    )


def from_known(known: Sequence[Sequence[int]]) -> Callable[[list[int]], int]:
    """What came next in the first of these sequences that begins so; anything if none does."""

    def follows(token_ids: list[int]) -> int:
        for one in known:
            if len(one) > len(token_ids) and list(one[: len(token_ids)]) == token_ids:
                return one[len(token_ids)]
        return len(token_ids) % VOCABULARY

    return follows


def cacheable(
    token_ids: Sequence[int], salt: str | None, block_size: int
) -> set[tuple[tuple[int, ...], str | None]]:
    """What may be cached of a sequence of these tokens: its beginnings of whole blocks."""
    ends = range(block_size, len(token_ids) + 1, block_size)
    return {(tuple(token_ids[:end]), salt) for end in ends}
