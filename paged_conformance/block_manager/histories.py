"""What is drawn: the sizes of a pool, and operations on it that suit a target's capabilities.

Prompts repeat each other's beginnings. Operations name sequences by a number that is taken modulo
how many there are, so that an operation suits any history before it.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

from hypothesis import strategies as st

from paged_conformance.drawing import Numbers, record, records
from paged_conformance.properties import Capabilities, Example

type Kinds = dict[str, tuple[int, Callable[[Numbers], list[Any]]]]

LENGTH, OPERATION = 32, 8  # of a history, and bytes of an operation
STARTS = [*product([-1, 0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 1, 2])]
LENGTHS = [*product([0, 1, 2, 3, 9, 9], [0, 0, 0, 1, 2])]
CHUNKS = [1, 2, 3, 4, 5, 8, 100, 100]


def histories(has: Capabilities) -> st.SearchStrategy[Example]:
    """Pools of a few blocks and some tens of operations."""
    low = has.sizes.get("min_block_size", 1)
    high = has.sizes.get("max_block_size", max(4, low))
    sizes = sorted({size for size in (1, 2, 3, 4, 5, 8, 16, low, high) if low <= size <= high})
    spare = has.sizes.get("watermark_blocks", 0)
    most = min(14, has.sizes.get("max_blocks", 14))
    least = min(2 + spare, most)

    def spell(first: bytes, ops: list[list[Any]]) -> Example:
        drawn = Numbers(first)
        return {
            "block_size": drawn.among([*sizes[:2], *sizes[:5]]),
            "num_blocks": least + drawn.below(most - least + 1),
            "num_swap_blocks": drawn.among([0, 2, 5, 12, 12]) if "swap" in has else 0,
            "ops": ops,
        }

    return st.builds(spell, record(3), weighted(_kinds(has)))


def place(drawn: Numbers) -> list[int]:
    """Number of an earlier text or -1, its blocks left out, blocks taken, tokens taken besides."""
    return [*drawn.among(STARTS), *drawn.among(LENGTHS)]


def which(drawn: Numbers) -> int:
    """A sequence."""
    return drawn.below(6)


def text(drawn: Numbers, most: int, least: int = 0) -> list[int]:
    """Tokens, of which there are two; ten at most."""
    size, bits = least + drawn.below(most - least + 1), drawn.below(1 << 10)
    return [bits >> position & 1 for position in range(size)]


def _kinds(has: Capabilities) -> Kinds:
    """The operations that a target has: how likely each is, and its arguments."""
    # Mostly none: texts of different keys have nothing to do with each other
    salts = [*[None] * 6, "a", "b"] if "salts" in has else [None]
    adapters = [*[None] * 6, "x", "y"] if "adapters" in has else [None]
    keys = [*product(salts, adapters)]

    def prompt(drawn: Numbers) -> list[Any]:
        """[.. of `place`, new tokens, salt, adapter]

        The blocks left out let a block be looked for where it was not: behind another text.
        """
        return [*place(drawn), text(drawn, 9), *drawn.among(keys)]

    def chunk(drawn: Numbers) -> int:
        return drawn.among(CHUNKS) if "chunks" in has else 100

    several = 6 if "several" in has else 1
    return {
        "open": (8, lambda drawn: [prompt(drawn), chunk(drawn)]),
        "step": (2, lambda drawn: [drawn.several(6, 1)]),
        "turn": (7, lambda drawn: [chunk(drawn), drawn.below(2)]),
        "extend": (4, lambda drawn: [which(drawn), chunk(drawn), text(drawn, several, 1)]),
        "free": (4, lambda drawn: [which(drawn)]),
        "free_again": (1, lambda drawn: [drawn.below(8)]),
        "match": (1 * ("match" in has), lambda drawn: [prompt(drawn)]),
        "guess": (
            3 * ("guesses" in has),
            lambda drawn: [which(drawn), drawn.below(2), text(drawn, 6, 1), drawn.below(7)],
        ),
        "fork": (3 * ("fork" in has), lambda drawn: [which(drawn)]),
        "swap": (3 * ("swap" in has), lambda drawn: [which(drawn)]),
        "misuse": (1 * ("strict" in has), lambda drawn: [which(drawn), which(drawn)]),
        "reset": (1 * ("reset" in has), lambda drawn: []),
        "unschedule": (2 * ("unschedule" in has), lambda drawn: [which(drawn)]),
    }


def weighted(kinds: Kinds) -> st.SearchStrategy[list[Any]]:
    """Some thirty operations [name, arguments, ..], as often as their weights say.

    All histories are drawn long. When an example is made smaller, operations become none.
    """
    names = ["", *(name for name, (weight, _) in kinds.items() for _ in range(weight))]

    def spell(operations: list[bytes]) -> list[Any]:
        spelled = []
        for one in operations:
            drawn = Numbers(one)
            name = drawn.among(names)
            if name:
                spelled.append([name, *kinds[name][1](drawn)])
        return spelled

    return records(LENGTH, OPERATION).map(spell)
