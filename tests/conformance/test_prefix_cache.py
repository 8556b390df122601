"""The suite of prefix caches catches each wrong target and passes right ones."""

from typing import Any

import pytest

from paged_conformance.prefix_cache import CAPABILITIES, PROPERTIES
from paged_conformance.prefix_cache.driver import run
from paged_conformance.prefix_cache.histories import histories
from paged_conformance.prefix_cache.right import RIGHT, Radix, maker
from paged_conformance.prefix_cache.wrong import WRONG
from paged_conformance.properties import Broken, Elsewhere, Property, Refused
from tests.conformance.test_block_manager import first_failure

NAMED = {prop.name: prop for prop in PROPERTIES}
PROMPT = [-1, 0, 0, 0, [0, 1, 1, 0], None]


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_a_wrong_cache_is_caught(kind: Any) -> None:
    make = maker(kind)
    assert set(NAMED[kind.caught_by].needs) <= set(make.capabilities)
    assert first_failure(make, NAMED[kind.caught_by], 300) is not None


@pytest.mark.parametrize("kind", RIGHT, ids=lambda kind: kind.__name__)
def test_a_right_cache_passes(kind: type[Radix]) -> None:
    prop = Property("all", "", histories, lambda made, example: run(made, example, "*"))
    assert first_failure(maker(kind), prop, 80) is None


def test_each_property_has_a_wrong_cache() -> None:
    assert {kind.caught_by for kind in WRONG} == set(NAMED)  # type: ignore[attr-defined]


def test_words_are_known() -> None:
    used = {word for kind in (*RIGHT, *WRONG) for word in maker(kind).capabilities}
    assert used <= set(CAPABILITIES)
    assert {word for prop in PROPERTIES for word in prop.needs} <= set(CAPABILITIES)


def test_a_cache_may_refuse_what_is_not_evictable_and_nothing_else() -> None:
    class RefusesAll(Radix):
        def evict(self, *, num_tokens: int) -> list[int]:
            raise Refused("never")

    example = {"page_size": 2, "num_pages": 4, "ops": [["begin", PROMPT], ["finish", 0]]}
    with pytest.raises(Broken, match="2 tokens were not evicted, of 4 that are evictable"):
        NAMED["what-is-evictable-is-evicted"].check(maker(RefusesAll), example)
    with pytest.raises(Elsewhere, match="what-is-evictable-is-evicted: 2 tokens"):
        NAMED["sizes-add-up"].check(maker(RefusesAll), example)
