"""Exercise: which blocks of a prompt are known already? (paper 4.4, "Shared prefix")

The keys and values in a full block depend on its tokens and on all tokens before it. So a block is
known by a hash of both: hash_of(hash of the block before, its own tokens); None before the first
block. Write both functions:

- `chain(tokens, block_size)`: the hashes of the *full* blocks, front to back.
- `num_known(tokens, block_size, known)`: how many tokens at the front need not be computed, if
  `known` is the set of hashes in the cache. Whole blocks only; nothing after the first unknown one;
  and at least one token must be left to compute, or there is nothing to draw the next one from.

Run it: python -m exercises.prefix_chain
"""

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, NamedTuple

from exercises.checking import Wrong, expect, report, returned
from exercises.variants import given_seed


def hash_of(before: int | None, tokens: Sequence[int]) -> int:
    """Given."""
    return hash((before, *tokens))


def chain(tokens: Sequence[int], block_size: int) -> list[int]:
    raise NotImplementedError


def num_known(tokens: Sequence[int], block_size: int, known: Collection[int]) -> int:
    raise NotImplementedError


Answer = tuple[
    Callable[[Sequence[int], int], list[int]],
    Callable[[Sequence[int], int, Collection[int]], int],
]


class Numbers(NamedTuple):
    """What a seed changes."""

    block_size: Annotated[int, range(3, 9)] = 4


def check(answer: Answer | None = None, seed: int = 0) -> bool:
    """Print what is wrong with (chain, num_known); True if nothing is."""
    return report(_test, answer or (chain, num_known), Numbers, seed)


def _test(answer: Answer, numbers: Numbers) -> None:
    chain, num_known = answer
    size = numbers.block_size
    full, count = 2 * size, 2 * size + 2
    tokens = [*range(1, count + 1)]
    hashes = returned(chain(tokens, size), "chain")
    what = f"the number of hashes of {count} tokens in blocks of {size} ({full} fill two)"
    expect(len(hashes), 2, what)
    expect(chain(tokens[: size - 1], size), [], f"the hashes of {size - 1} tokens in such blocks")
    other = [tokens[-1], *tokens[1:full]]
    if chain(other, size)[1] == hashes[1]:
        raise Wrong(
            f"two sequences differ in their first token, and the second blocks of both, "
            f"{tokens[size:full]}, have the same hash: what is before counts"
        )
    first = hash_of(None, tokens[:size])
    wanted = [first, hash_of(first, tokens[size:full])]
    what = f"the hashes of 1 .. {count} (of the hash before and a block's own tokens)"
    expect(hashes, wanted, what)

    known = set(chain(tokens, size))
    what = f"tokens (not blocks) known of 1 .. {count}, both blocks in the cache"
    expect(num_known(tokens, size, known), full, what)
    expect(num_known(tokens, size, set()), 0, "tokens known with an empty cache")
    other = [*tokens[:size], *[0] * (size + 1)]
    expect(num_known(other, size, known), size, f"tokens known of {other}")
    what = f"tokens known of 1 .. {full} (one must be left to compute, and half a block is none)"
    expect(num_known(tokens[:full], size, known), size, what)
    only_second = {hashes[1]}
    what = "tokens known when only the second block is cached"
    expect(num_known(tokens, size, only_second), 0, what)


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
