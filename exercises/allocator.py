"""Exercise: a pool of equal blocks (paper 4.2).

Memory for keys and values is cut into blocks 0 .. n-1, once and for all. A block may have several
holders, so it counts them. Write the four methods:

- `allocate` hands out the block that was freed last (a stack; at first block n-1 is on top, then
  n-2, ..), with one holder. Raise NoBlockError when none is free.
- `share` adds a holder to a block that has one.
- `free` takes a holder away. The block is free again when the last one is gone. Raise
  DoubleFreeError for a block that nobody holds.
- `num_free` says how many blocks are free.

Run it: python -m exercises.allocator
"""

from typing import Annotated, NamedTuple

from exercises.checking import expect, must_raise, report
from exercises.variants import given_seed


class NoBlockError(Exception):
    """All blocks are held."""


class DoubleFreeError(Exception):
    """Nobody holds this block."""


class Allocator:
    def __init__(self, num_blocks: int) -> None:
        raise NotImplementedError

    def allocate(self) -> int:
        raise NotImplementedError

    def share(self, block: int) -> None:
        raise NotImplementedError

    def free(self, block: int) -> None:
        raise NotImplementedError

    @property
    def num_free(self) -> int:
        raise NotImplementedError


class Numbers(NamedTuple):
    """What a seed changes."""

    num_blocks: Annotated[int, range(4, 10)] = 3


def check(answer: type[Allocator] = Allocator, seed: int = 0) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return report(_test, answer, Numbers, seed)


def _test(answer: type[Allocator], numbers: Numbers) -> None:
    n = numbers.num_blocks
    pool = answer(n)
    expect(pool.num_free, n, f"num_free of a new pool of {n} blocks")
    taken = [pool.allocate() for _ in range(n)]
    expect(sorted(taken), [*range(n)], f"the blocks that {n} calls of allocate hand out")
    expect(taken, [*range(n)][::-1], "the order in which they are handed out")
    must_raise(NoBlockError, pool.allocate, "allocate with no block free")
    expect(pool.num_free, 0, "num_free when all are held")

    pool.share(1)
    pool.free(1)
    expect(pool.num_free, 0, "num_free after block 1 got a second holder and one of the two let go")
    pool.free(1)
    expect(pool.num_free, 1, "num_free after the second holder let go, too")
    must_raise(DoubleFreeError, lambda: pool.free(1), "free of block 1, which nobody holds,")
    expect(pool.num_free, 1, "num_free after that error (it must change nothing)")

    pool.free(2)
    expect(pool.allocate(), 2, "the block handed out after 1 and then 2 were freed")
    pool.free(2)
    expect(
        pool.num_free, 2, "num_free after block 2 was handed out again, to one holder, and freed"
    )


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
