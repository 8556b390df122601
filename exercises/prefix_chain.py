"""Exercise 5: which blocks of a prompt are known already? (paper 4.4, "Shared prefix")

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

from exercises.checking import Wrong, expect, report, returned


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


def check(answer: Answer | None = None) -> bool:
    """Print what is wrong with (chain, num_known); True if nothing is."""
    return report(_test, answer or (chain, num_known))


def _test(answer: Answer) -> None:
    chain, num_known = answer
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    hashes = returned(chain(tokens, 4), "chain")
    expect(len(hashes), 2, "the number of hashes of 10 tokens in blocks of 4 (8 fill two)")
    expect(chain(tokens[:3], 4), [], "the hashes of 3 tokens in blocks of 4")
    if chain([9, 2, 3, 4, 5, 6, 7, 8], 4)[1] == hashes[1]:
        raise Wrong(
            "[9 2 3 4] [5 6 7 8] has the second hash of [1 2 3 4] [5 6 7 8]: what is before counts"
        )
    first = hash_of(None, tokens[:4])
    wanted = [first, hash_of(first, tokens[4:8])]
    expect(hashes, wanted, "the hashes of 1 .. 10 (of the hash before and a block's own tokens)")

    known = set(chain(tokens, 4))
    what = "tokens (not blocks) known of 1 .. 10, both blocks in the cache"
    expect(num_known(tokens, 4, known), 8, what)
    expect(num_known(tokens, 4, set()), 0, "tokens known with an empty cache")
    expect(num_known([1, 2, 3, 4, 9, 9, 9, 9, 9], 4, known), 4, "tokens known of 1 2 3 4 9 9 9 9 9")
    what = "tokens known of 1 .. 8 (one must be left to compute, and half a block does not count)"
    expect(num_known(tokens[:8], 4, known), 4, what)
    only_second = {chain(tokens, 4)[1]}
    expect(
        num_known(tokens, 4, only_second), 0, "tokens known when only the second block is cached"
    )


if __name__ == "__main__":
    check()
