"""Texts of earlier requests: where a key stood, and which texts have gone."""

from unittest.mock import patch

import numpy as np

from jax_engine.speculation import lookup_drafters
from jax_engine.speculation.lookup_drafters import Corpus

MANY = 1000


def places_of(some: Corpus, *key: int, most: int = MANY) -> list[list[int]]:
    """The two tokens behind each place where the key stood."""
    return some.places(key, most).after(2).tolist()


def test_the_newest_place_comes_first() -> None:
    some = Corpus(MANY, [2])
    assert places_of(some, 5, 6) == []
    some.add(np.array([5, 6, 7, 5, 6, 8, 5, 6]))  # no token stands behind the last place
    some.add(np.array([5, 6, 9]))
    assert places_of(some, 5, 6) == [[9, -1], [8, 5], [7, 5]]
    assert places_of(some, 5, 6, most=2) == [[9, -1], [8, 5]]
    assert places_of(some, 6, 5) == [] and places_of(some, 8, 5) == [[6, -1]]


def test_the_oldest_texts_go_where_there_are_too_many() -> None:
    some = Corpus(2, [2])
    for text in ([5, 6, 7], [5, 6, 8], [5, 7, 9]):
        some.add(np.array(text, np.int32))
    assert places_of(some, 5, 6) == [[8, -1]] and places_of(some, 5, 7) == [[9, -1]]
    some.add(np.array([1], np.int32))
    assert places_of(some, 5, 6) == [] and places_of(some, 5, 7) == [[9, -1]]


def test_the_oldest_texts_go_where_they_are_too_long() -> None:
    """With a gap behind each, two texts of 6 tokens fit into 16, and three do not."""
    with patch.object(lookup_drafters, "SIZE", 16):
        some = Corpus(MANY, [2])
        for start in (10, 20, 30):
            some.add(np.arange(start, start + 6))
        assert places_of(some, 10, 11) == []
        assert places_of(some, 20, 21) == [[22, 23]] and places_of(some, 34, 35) == []
        assert places_of(some, 33, 34) == [[35, -1]]


def test_each_adapter_finds_its_own_texts() -> None:
    lookup_drafters = Corpus(4, (2,))
    first, second = "a" * 64, "b" * 64
    lookup_drafters.add(np.array([1, 2, 3]))
    lookup_drafters.add(np.array([1, 2, 4]), first)
    lookup_drafters.add(np.array([1, 2, 5]), second)
    for adapter, follows in ((None, 3), (first, 4), (second, 5)):
        found = lookup_drafters.places((1, 2), 8, adapter)
        assert found.after(1).tolist() == [[follows]]
    assert len(lookup_drafters.places((1, 2), 8, "c" * 64).at) == 0
