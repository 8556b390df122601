"""Exercise 1: a pool of equal blocks (paper 4.2).

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

from exercises.checking import Wrong, expect, report


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


def check(answer: type[Allocator] = Allocator) -> bool:
    """Print what is wrong with it; True if nothing is."""
    return report(_test, answer)


def _test(answer: type[Allocator]) -> None:
    pool = answer(3)
    expect(pool.num_free, 3, "num_free of a new pool of 3 blocks")
    taken = [pool.allocate() for _ in range(3)]
    expect(sorted(taken), [0, 1, 2], "the blocks that three calls of allocate hand out")
    expect(taken, [2, 1, 0], "the order in which they are handed out")
    _must_raise(NoBlockError, pool.allocate, "allocate with no block free")
    expect(pool.num_free, 0, "num_free when all three are held")

    pool.share(1)
    pool.free(1)
    expect(pool.num_free, 0, "num_free after block 1 got a second holder and one of the two let go")
    pool.free(1)
    expect(pool.num_free, 1, "num_free after the second holder let go, too")
    _must_raise(DoubleFreeError, lambda: pool.free(1), "free of block 1, which nobody holds,")
    expect(pool.num_free, 1, "num_free after that error (it must change nothing)")

    pool.free(2)
    expect(pool.allocate(), 2, "the block handed out after 1 and then 2 were freed")
    pool.free(2)
    expect(
        pool.num_free, 2, "num_free after block 2 was handed out again, to one holder, and freed"
    )


def _must_raise(error: type[Exception], action: object, what: str) -> None:
    assert callable(action)
    try:
        action()
    except error:
        return
    except Exception as other:
        raise Wrong(
            f"{what} raised {type(other).__name__}, but it should raise {error.__name__}"
        ) from other
    raise Wrong(f"{what} raised nothing, but it should raise {error.__name__}")


if __name__ == "__main__":
    check()
