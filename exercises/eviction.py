"""Exercise: free blocks that are still worth something (prefix caching; vLLM V1's block pool).

A full block's content has a key, a hash. A block that nobody holds any more is free, but keeps its
content, and its key, until it is handed out for something else. So free blocks stand in a queue,
and the one that has been free for longest goes first. Write `Cache`:

- `take(key)` hands out the first block of the queue, which is 0, 1, .. at first, with one holder.
  Whatever the block was known for is forgotten; now it is known by `key`, unless that is None (a
  block that is not full). Raise NoBlockError when the queue is empty.
- `find(key)` returns the block that is known by the key, with one holder more, or None. If nobody
  held it, it leaves the queue, from wherever it stands.
- `free(table)` takes one holder from each block of a sequence's table, from the last one to the
  first: the end of a prefix is of use to fewer than its beginning, so it is to go sooner. A block
  without holders goes to the end of the queue.
- `num_free` is how many blocks the queue has.

Run it: python -m exercises.eviction
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from exercises.checking import expect, must_raise, report
from exercises.variants import given_seed


class NoBlockError(Exception):
    """All blocks are held."""


class Cache:
    def __init__(self, num_blocks: int) -> None:
        raise NotImplementedError

    def take(self, key: str | None) -> int:
        raise NotImplementedError

    def find(self, key: str) -> int | None:
        raise NotImplementedError

    def free(self, table: Sequence[int]) -> None:
        raise NotImplementedError

    @property
    def num_free(self) -> int:
        raise NotImplementedError


class Numbers(NamedTuple):
    """What a seed changes."""

    num_blocks: Annotated[int, range(5, 12)] = 4


def check(answer: type[Cache] = Cache, seed: int = 0) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return report(_test, answer, Numbers, seed)


def _test(answer: type[Cache], numbers: Numbers) -> None:
    n = numbers.num_blocks
    cache = answer(n)
    expect(cache.num_free, n, f"num_free of a new cache of {n} blocks")
    taken = [cache.take(f"k{i}") for i in range(n)]
    expect(taken, [*range(n)], f"the blocks that {n} calls of take hand out")
    must_raise(NoBlockError, lambda: cache.take("more"), "take with no block free")
    expect(cache.find("k1"), 1, "the block found for a key whose block is held")
    cache.free(taken)
    expect(cache.num_free, n - 1, "num_free after all were freed once, and block 1 was held twice")
    cache.free([1])
    expect(cache.num_free, n, "num_free after block 1 was freed, too")
    expect(
        cache.find("k0"), 0, "the block found for a key whose block is free (it keeps its content)"
    )
    expect(cache.num_free, n - 1, "num_free after block 0 was found (it left the queue)")
    cache.free([0])

    order = [*range(n - 1, 1, -1), 1, 0]
    what = (
        "the blocks handed out: the last of the table first, then 1 (freed later), then 0 (found)"
    )
    expect([cache.take(f"n{i}") for i in range(n)], order, what)
    expect(cache.find("k2"), None, "what is found for a key whose block was handed out again")
    expect(cache.find("none"), None, "what is found for a key that never was")
    cache.free(order)
    expect(cache.find("n0"), n - 1, "the block found for its new key")
    expect(cache.num_free, n - 1, "num_free after that block was found")

    cache = answer(n)
    tails = [cache.take(None), cache.take(None)]
    cache.free(tails)
    again = [cache.take(None) for _ in range(n)]
    expect(sorted(again), [*range(n)], "the blocks handed out for the key None, each of them once")
    cache.free([again[0]])
    expect(cache.take("new"), again[0], "the block handed out when one is free")
    expect(cache.find("new"), again[0], "the block found for the key of one that had none before")


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
