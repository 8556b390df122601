"""What is drawn: a page size, a number of pages, and what requests do with the cache."""

from typing import Any

from hypothesis import strategies as st

from paged_conformance.block_manager.histories import Kinds, place, text, weighted, which
from paged_conformance.drawing import Numbers, record
from paged_conformance.properties import Capabilities, Example


def histories(has: Capabilities) -> st.SearchStrategy[Example]:
    """A memory of a few pages and some tens of operations."""
    low, high = has.sizes.get("min_page_size", 1), has.sizes.get("max_page_size", 4)
    sizes = [size for size in (1, 2, 3, 4, 8, 16) if low <= size <= high] or [low]

    def spell(first: bytes, ops: list[list[Any]]) -> Example:
        drawn = Numbers(first)
        page_size = drawn.among([*sizes[:2], *sizes])
        return {"page_size": page_size, "num_pages": 1 + drawn.below(16), "ops": ops}

    return st.builds(spell, record(2), weighted(_kinds(has)))


def _kinds(has: Capabilities) -> Kinds:
    salts = [*[None] * 6, "a", "b"] if "salts" in has else [None]

    def prompt(drawn: Numbers) -> list[Any]:
        return [*place(drawn), text(drawn, 9), drawn.among(salts)]

    return {
        "begin": (8, lambda drawn: [prompt(drawn)]),
        "finish": (5, lambda drawn: [which(drawn)]),
        "go_on": (2, lambda drawn: [which(drawn), text(drawn, 5)]),
        "keep": (3, lambda drawn: [which(drawn)]),
        "abandon": (2, lambda drawn: [which(drawn)]),
        "look": (3, lambda drawn: [prompt(drawn)]),
        "hold": (1, lambda drawn: [prompt(drawn)]),
        "lock_held": (1, lambda drawn: [which(drawn)]),
        "lock_again": (2, lambda drawn: [which(drawn)]),
        "evict": (3, lambda drawn: [drawn.among([0, 1, 1, 2, 2, 3, 5, 100])]),
        "reset": (1 * ("reset" in has), lambda drawn: []),
    }
