"""Exercise 2: sequences that share blocks (paper 4.3 and 4.4, Figure 8).

A sequence's block table is a list: logical block i is the physical block table[i]. Four words go
into a block, so position p lies in logical block p // 4, at offset p % 4. Write both functions:

- `fork(pool, table)` returns the table of a new sequence that has the same words. It copies no
  words: both share all blocks, and each block has one holder more.
- `append(pool, table, position, word)` writes one word at the end of a sequence, and changes
  `table` as needed: take a new block if the position begins one; if others hold the block too, take
  a new one, copy the words, and let go of the old one (copy on write); if not, write in place.

Given is `Pool`. Run it: python -m exercises.copy_on_write
"""

from collections.abc import Callable

from exercises.checking import Wrong, expect, report

BLOCK_SIZE = 4
Table = list[int]


class Pool:
    """Blocks of words with reference counts; hands out 7, 1, 3, 5, .. as in the paper's figures."""

    def __init__(self) -> None:
        self.words = [[""] * BLOCK_SIZE for _ in range(9)]
        self.holders = [0] * 9
        self._free = [0, 4, 6, 8, 2, 5, 3, 1, 7]

    def take(self) -> int:
        """A free block; it has one holder then."""
        block = self._free.pop()
        self.holders[block] = 1
        return block

    def share(self, block: int) -> None:
        """One holder more."""
        self.holders[block] += 1

    def let_go(self, block: int) -> None:
        """One holder less; without holders the block is free."""
        self.holders[block] -= 1
        if self.holders[block] == 0:
            self._free.append(block)


def fork(pool: Pool, table: Table) -> Table:
    raise NotImplementedError


def append(pool: Pool, table: Table, position: int, word: str) -> None:
    raise NotImplementedError


Answer = tuple[Callable[[Pool, Table], Table], Callable[[Pool, Table, int, str], None]]


def check(answer: Answer | None = None) -> bool:
    """Print what is wrong with (fork, append); True if nothing is."""
    return report(_test, answer or (fork, append))


def _read(pool: Pool, table: Table, length: int) -> str:
    slots = [(table[p // BLOCK_SIZE], p % BLOCK_SIZE) for p in range(length)]
    return " ".join(pool.words[block][offset] for block, offset in slots)


def _test(answer: Answer) -> None:
    fork, append = answer
    pool = Pool()
    first: Table = []
    prompt = "Four score and seven years ago our"
    for position, word in enumerate(prompt.split()):
        append(pool, first, position, word)
        if position == 1:
            expect(first, [7], "the table after two words (nobody else holds 7: write in place)")
    expect(first, [7, 1], "the table of a sequence of 7 words, the pool handing out 7, then 1")
    expect(_read(pool, first, 7), prompt, "the words read through that table")

    second = fork(pool, first)
    expect(second, [7, 1], "the table of the fork")
    if second is first:
        raise Wrong("fork returned the same list, so a change of one table changes the other")
    expect(
        (pool.holders[7], pool.holders[1]), (2, 2), "the holders of blocks 7 and 1 after the fork"
    )

    append(pool, first, 7, "fathers")
    if pool.words[3] is pool.words[1]:
        raise Wrong("words[3] and words[1] are the same list: copy its words, as in list(..)")
    expect(_read(pool, second, 7), prompt, "the fork's words after the first wrote “fathers”")
    if pool.words[1][3] == "fathers":
        raise Wrong("“fathers” was written into block 1, which the fork holds, too; copy it first")
    expect(first, [7, 3], "the first's table after it wrote into the shared block (3 is the copy)")
    expect(_read(pool, first, 8), f"{prompt} fathers", "the first's words (did the copy have all?)")
    expect(pool.holders[1], 1, "the holders of block 1 after the first let go of it")
    expect(pool.holders[3], 1, "the holders of the copy")

    append(pool, second, 7, "mothers")
    expect(second, [7, 1], "the fork's table: alone in block 1 by now, it writes in place")
    expect(_read(pool, second, 8), f"{prompt} mothers", "the fork's words")
    append(pool, second, 8, "carried")
    expect(second, [7, 1, 5], "the fork's table after its ninth word, which begins a block")
    expect(pool.holders[7], 2, "the holders of block 7, which is full and stays shared")


if __name__ == "__main__":
    check()
