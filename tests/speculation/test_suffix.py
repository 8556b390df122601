"""Suffix decoding, against the rule written as a search of all places."""

from collections import Counter
from itertools import count as counted
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.speculation import lookup_drafters
from jax_engine.speculation.drafter import DraftRequest
from jax_engine.speculation.lookup_drafters import SuffixDrafter

MANY = 1000
texts = st.lists(st.integers(0, 2), min_size=1, max_size=40)
settings = st.fixed_dictionaries(
    {
        "max_tree_depth": st.sampled_from([1, 2, 3, 4, 5, 8, 24, 64]),
        "max_cached_requests": st.sampled_from([0, 1, 3, MANY]),
        "max_spec_factor": st.sampled_from([0, 0.5, 1.0, 1.7, 4.0, float("inf")]),
        "min_token_prob": st.sampled_from([0, 0.1, 0.3, 0.5, 1.0]),
    }
)
PLAIN: dict[str, Any] = {
    "max_tree_depth": 24, "max_cached_requests": 10, "max_spec_factor": 1.0, "min_token_prob": 0.1,
}  # fmt: skip
NAMES = counted(100)
type Place = tuple[list[int], int]  # a text, and how much of it stands before


def places(tokens: list[int], outputs: list[list[int]], n: int, most: int) -> list[Place]:
    """Where the last n tokens stood with a token behind them, the newest first."""
    found: list[Place] = []
    for some in ([tokens], outputs[::-1]):
        behind = [(text, end) for text in some for end in range(len(text) - 1, n - 1, -1)]
        found += [one for one in behind if one[0][one[1] - n : one[1]] == tokens[-n:]][:most]
    return found


def longest(tokens: list[int], place: Place) -> int:
    text, end = place
    length = 0
    while length < min(end, len(tokens)) and text[end - length - 1] == tokens[-length - 1]:
        length += 1
    return length


def expected(
    tokens: list[int], outputs: list[list[int]], count: int, how: dict[str, Any], most: int = MANY
) -> list[int]:
    depth = how["max_tree_depth"]
    for n in (min(4, depth), min(2, depth)):
        found = places(tokens, outputs, n, most) if n <= len(tokens) else []
        if found:
            break
    else:
        return []
    lengths = [min(depth, longest(tokens, place)) for place in found]
    best = max(lengths)
    going = [place for place, length in zip(found, lengths, strict=True) if length == best]
    total, guesses = len(going), list[int]()
    while len(guesses) < min(count, how["max_spec_factor"] * best // 1):
        k = len(guesses)
        going = [(text, end) for text, end in going if end + k < len(text)]
        votes = Counter(text[end + k] for text, end in going)
        if not votes:
            break
        token = next(one for one in votes if votes[one] == max(votes.values()))  # the newest
        going = [(text, end) for text, end in going if text[end + k] == token]
        if len(going) / total < how["min_token_prob"]:
            break
        guesses.append(token)
    return guesses


def kept(outputs: list[list[int]], how: dict[str, Any], size: int) -> list[list[int]]:
    """The newest outputs, each with a gap behind it, that fit."""
    outputs = [one[-size // 2 :] for one in outputs]
    while len(outputs) > how["max_cached_requests"] or sum(len(o) + 1 for o in outputs) > size:
        outputs = outputs[1:]
    return outputs


@given(tokens=texts, outputs=st.lists(texts, max_size=5), count=st.integers(1, 9), how=settings)
@example(tokens=[1], outputs=[[1, 1, 1]], count=3, how=PLAIN)
@example(tokens=[0, 1], outputs=[[0, 1, 2]], count=3, how=PLAIN)
@example(tokens=[2, 0, 1], outputs=[[0, 1, 2], [2, 0, 1]], count=3, how=PLAIN)
def test_guesses_are_those_of_the_rule(
    tokens: list[int], outputs: list[list[int]], count: int, how: dict[str, Any]
) -> None:
    with patch.object(lookup_drafters, "MOST_PLACES", MANY):
        drafter = SuffixDrafter(**how)
        for i, one in enumerate(outputs):
            drafter.propose([DraftRequest(i, [9, *one], 1, 1)])
            drafter.forget({i})
        (guesses,) = drafter.propose([DraftRequest(99, tokens, 1, count)])
    assert guesses == expected(tokens, kept(outputs, how, 2**20), count, how)


@given(
    turns=st.lists(st.tuples(st.integers(0, 3), texts, st.booleans()), max_size=40),
    how=settings,
    most=st.sampled_from([1, 3, MANY]),
    size=st.sampled_from([32, 64, 256]),
)
def test_sequences_grow_and_end_and_the_oldest_outputs_go(
    turns: list[tuple[int, list[int], bool]], how: dict[str, Any], most: int, size: int
) -> None:
    """A ring of few tokens, of which the newest texts are kept; the newest places vote."""
    running: dict[int, tuple[int, list[int]]] = {}
    outputs: list[list[int]] = []
    with (
        patch.object(lookup_drafters, "MOST_PLACES", most),
        patch.object(lookup_drafters, "SIZE", size),
    ):
        drafter = SuffixDrafter(**how)
        for name, (which, new, ends) in enumerate(turns):
            prompt_len, tokens = running.get(which, (len(new), []))
            running[which] = prompt_len, [*tokens, *new]
            asked = [DraftRequest(100 * i + n, t, n, 5) for i, (n, t) in running.items()]
            known = kept(outputs, how, size)
            told = [expected(one.token_ids, known, 5, how, most) for one in asked]
            assert drafter.propose(asked) == told, name
            if ends:
                prompt_len, tokens = running.pop(which)
                drafter.forget({100 * which + prompt_len})
                outputs.append(tokens[prompt_len:])


@given(tokens=texts, outputs=st.lists(texts, max_size=5))
def test_places_of_the_same_hash_are_told_apart(
    tokens: list[int], outputs: list[list[int]]
) -> None:
    with (
        patch.object(lookup_drafters, "MOST_PLACES", MANY),
        patch.object(lookup_drafters, "HEADS", 2),
    ):
        drafter = SuffixDrafter(**PLAIN)
        for i, one in enumerate(outputs):
            drafter.propose([DraftRequest(i, [9, *one], 1, 1)])
        drafter.forget(set(range(len(outputs))))
        (guesses,) = drafter.propose([DraftRequest(99, tokens, 1, 9)])
    assert guesses == expected(tokens, outputs, 9, PLAIN)


def test_of_those_that_end_together_the_last_one_is_the_newest() -> None:
    """Ids that it does not know change nothing, and it goes on with those that live on."""
    drafter = SuffixDrafter(**PLAIN | {"max_cached_requests": 1})
    asked = [DraftRequest(i, [9, 0, 1, 10 + i], 1, 1) for i in (1, 8, 3)]
    drafter.propose(asked)
    drafter.forget({1, 8, 77})
    assert drafter.propose([DraftRequest(99, [0, 1], 1, 1)]) == [[18]]
    drafter.forget({3})
    assert drafter.propose([DraftRequest(99, [0, 1], 1, 1)]) == [[13]]


@given(tokens=texts, outputs=st.lists(texts, max_size=5), shares=st.booleans())
@example(tokens=[0, 1], outputs=[[2, 0, 1, 0]], shares=True)
@example(tokens=[0, 1], outputs=[[2, 0, 1, 0]], shares=False)
def test_a_promise_is_that_the_last_two_tokens_stood_before(
    tokens: list[int], outputs: list[list[int]], shares: bool
) -> None:
    """Then the next one may end a match of three; a lone first token promises what one can."""
    promised = drafter_that_knows(*outputs).promises(DraftRequest(99, tokens, 1, 5, shares))
    known = outputs if shares else []
    assert promised is bool(len(tokens) > 1 and places(tokens, known, 2, MANY))


def drafter_that_knows(*outputs: list[int], **changes: Any) -> SuffixDrafter:
    drafter = SuffixDrafter(**(PLAIN | changes))
    for i, one in enumerate(outputs):
        drafter.propose([DraftRequest(i, [1000, *one], 1, 1)])
        drafter.forget({i})
    return drafter


def guesses_of(drafter: SuffixDrafter, *tokens: int, count: int = 9) -> list[int]:
    (guesses,) = drafter.propose([DraftRequest(next(NAMES), list(tokens), len(tokens), count)])
    return guesses


def test_examples_by_hand() -> None:
    """A match is in the sequence itself or in an output, not in another's prompt; most frequent."""
    assert guesses_of(drafter_that_knows(), 5, 6, 7, 8, 9, 5, 6, 7) == [8, 9, 5]
    assert guesses_of(drafter_that_knows([5, 6, 7, 8, 9]), 1, 5, 6) == [7, 8]
    assert guesses_of(drafter_that_knows([6, 7, 8]), 1000, 6) == []
    some = drafter_that_knows([5, 6, 7, 1], [5, 6, 7, 2], [5, 6, 8, 1])
    assert guesses_of(some, 5, 6) == [7, 2]  # 7 twice in three; then once each, the newest
    picky = drafter_that_knows([5, 6, 7, 1], [5, 6, 7, 2], [5, 6, 8, 1], min_token_prob=0.5)
    assert guesses_of(picky, 5, 6) == [7]
    assert guesses_of(picky, 5, 6, count=1) == [7]
    alone = drafter_that_knows([5, 6, 7, 8, 9], max_cached_requests=0)
    assert guesses_of(alone, 1, 5, 6) == []


@pytest.mark.parametrize("factor, most", [(0, 0), (0.4, 1), (0.5, 2), (1.0, 4), (2.0, 8)])
def test_longer_suffixes_are_trusted_further(factor: float, most: int) -> None:
    drafter = drafter_that_knows(list(range(50)), max_spec_factor=factor)
    assert guesses_of(drafter, 99, 5, 6, 7, 8) == list(range(9, 9 + most))


def test_a_share_at_the_limit_is_enough() -> None:
    """3 of 30, which is 0.1 in the arithmetic of both sides."""
    outputs = [[5, 6, 7]] * 3 + [[5, 6, 100 + i] for i in range(27)]
    drafter = drafter_that_knows(*outputs, max_cached_requests=99)
    assert guesses_of(drafter, 1, 5, 6) == [7]


def test_outputs_are_known_as_far_as_they_were_seen() -> None:
    """What a sequence got after it was asked last, the drafter has never seen."""
    drafter = SuffixDrafter(**PLAIN)
    tokens = [1, 5, 6, 7]
    drafter.propose([DraftRequest(0, tokens, 1, 1)])
    tokens += [8, 9]
    drafter.forget({0})
    assert guesses_of(drafter, 5, 6) == [7]


def test_an_output_longer_than_the_ring_keeps_its_end() -> None:
    with patch.object(lookup_drafters, "SIZE", 16):
        drafter = drafter_that_knows(list(range(100)))
        assert guesses_of(drafter, 90, 91) == []
        assert guesses_of(drafter, 92, 93) == [94, 95]


def test_who_has_a_salt_neither_gives_nor_takes() -> None:
    drafter = SuffixDrafter(**PLAIN)
    text = [1, 2, 3, 4, 5, 6, 7, 8]
    drafter.propose([DraftRequest(1, text, 0, 4, shares=False)])
    drafter.forget({1})
    assert drafter.propose([DraftRequest(2, text[:5], 0, 4)]) == [[]]
    drafter.forget({2})
    drafter.propose([DraftRequest(3, text, 0, 4)])
    drafter.forget({3})
    assert drafter.propose(
        [DraftRequest(4, text[:4], 0, 4), DraftRequest(5, text[:4], 0, 4, shares=False)]
    ) == [[5, 6, 7, 8], []]
