"""Prompt lookup, against a search that tries each length and each place."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.speculation.drafter import DraftRequest
from jax_engine.speculation.lookup_drafters import NgramDrafter, last_match

texts = st.lists(st.integers(0, 2), min_size=1, max_size=40)


def searched(tokens: list[int], low: int, high: int) -> int | None:
    """Where the most recent of the longest earlier matches ends."""
    for n in range(high, low - 1, -1):
        for start in range(len(tokens) - n - 1, -1, -1):
            if tokens[start : start + n] == tokens[len(tokens) - n :]:
                return start + n
    return None


def following(tokens: list[int], end: int | None, count: int) -> list[int]:
    """The tokens behind a match, repeated over and over."""
    if end is None:
        return []
    return [tokens[end + i % (len(tokens) - end)] for i in range(count)]


@given(tokens=texts, low=st.integers(1, 5), more=st.integers(0, 5))
@example(tokens=[1], low=1, more=0)
@example(tokens=[1, 1], low=1, more=0)
@example(tokens=[1, 1], low=2, more=0)
@example(tokens=[2, 0, 1, 0, 1], low=2, more=2)  # the match begins with the text's second token
def test_a_match_is_the_one_that_a_search_finds(tokens: list[int], low: int, more: int) -> None:
    found = last_match(np.array(tokens, np.int32), low, low + more)
    assert found == searched(tokens, low, low + more)


@given(
    prompts=st.lists(texts, min_size=1, max_size=3),
    turns=st.lists(st.tuples(st.integers(0, 2), texts, st.integers(1, 6)), max_size=30),
    low=st.integers(1, 3),
    more=st.integers(0, 2),
)
def test_guesses_follow_the_match_while_sequences_grow(
    prompts: list[list[int]], turns: list[tuple[int, list[int], int]], low: int, more: int
) -> None:
    """Several at a time, by turns: each is looked up in itself."""
    drafter = NgramDrafter(low, low + more)
    sequences = [list(prompt) for prompt in prompts]
    for which, new, count in turns:
        sequences[which % len(sequences)] += new
        asked = [DraftRequest(7 + i, one, 1, count) for i, one in enumerate(sequences)]
        guesses = drafter.propose(asked[::-1])[::-1]
        for one, guessed in zip(sequences, guesses, strict=True):
            end = searched(one, low, low + more)
            assert guessed == following(one, end, count)


def test_a_long_text_that_grows() -> None:
    """Past each size that the drafter makes room for, by one token and by many."""
    drafter = NgramDrafter(3, 5)
    tokens = list(range(250))
    for new in ([3, 4, 5], [6, 7], [8], list(range(300, 900)), [300, 301, 302], [1]):
        tokens += new
        end = searched(tokens, 3, 5)
        (guesses,) = drafter.propose([DraftRequest(0, tokens, 4, 4)])
        assert guesses == following(tokens, end, 4)
    assert len(tokens) > 512


def test_a_forgotten_sequence_leaves_nothing() -> None:
    """Its name is never given again; if it were, it would name another text."""
    drafter = NgramDrafter(1, 1)
    assert drafter.propose([DraftRequest(0, [5, 6, 5], 3, 9)]) == [[6, 5, 6, 5, 6, 5, 6, 5, 6]]
    drafter.forget({0, 1})
    assert drafter.propose([DraftRequest(0, [7, 8, 5], 3, 9)]) == [[]]


@given(tokens=texts, low=st.integers(1, 4), more=st.integers(0, 3))
@example(tokens=[1, 1], low=2, more=0)  # the next token ends a match that overlaps itself
@example(tokens=[0, 1], low=2, more=0)
def test_a_promise_is_that_some_next_token_brings_guesses(
    tokens: list[int], low: int, more: int
) -> None:
    drafter = NgramDrafter(low, low + more)
    promised = drafter.promises(DraftRequest(1, tokens, 1, 4))
    after = [drafter.propose([DraftRequest(2 + t, [*tokens, t], 1, 4)])[0] for t in range(3)]
    assert promised is any(after)
