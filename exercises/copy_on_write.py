"""Exercise: sequences that share blocks (paper 4.3 and 4.4, Figure 8).

A sequence's block table is a list: logical block i is the physical block table[i]. A block has B =
pool.block_size words, so position p lies in logical block p // B, at offset p % B. Write both
functions:

- `fork(pool, table)` returns the table of a new sequence that has the same words. It copies no
  words: both share all blocks, and each block has one holder more.
- `append(pool, table, position, word)` writes one word at the end of a sequence, and changes
  `table` as needed: take a new block if the position begins one; if others hold the block too, take
  a new one, copy the words, and let go of the old one (copy on write); if not, write in place.

Given is `Pool`. Run it: python -m exercises.copy_on_write
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

from exercises.checking import Wrong, expect, report
from exercises.variants import given_seed

Table = list[int]


class Pool:
    """Blocks of words with reference counts; hands out 7, 1, 3, 5, .. as in the paper's figures."""

    def __init__(self, block_size: int = 4) -> None:
        self.block_size = block_size
        self.words = [[""] * block_size for _ in range(9)]
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


class Numbers(NamedTuple):
    """What a seed changes."""

    block_size: Annotated[int, range(2, 9)] = 4


def check(answer: Answer | None = None, seed: int = 0) -> bool:
    """Print what is wrong with (fork, append); True if nothing is."""
    return report(_test, answer or (fork, append), Numbers, seed)


def _read(pool: Pool, table: Table, length: int) -> str:
    slots = [(table[p // pool.block_size], p % pool.block_size) for p in range(length)]
    return " ".join(pool.words[block][offset] for block, offset in slots)


TEXT = "Four score and seven years ago our fathers brought forth on this continent a new nation"


def _test(answer: Answer, numbers: Numbers) -> None:
    fork, append = answer
    pool = Pool(numbers.block_size)
    first: Table = []
    last = 2 * numbers.block_size - 1  # the position that fills the second block
    words = TEXT.split()
    prompt, word = " ".join(words[:last]), words[last]
    for position, word in enumerate(prompt.split()):
        append(pool, first, position, word)
        if position == 1:
            expect(first, [7], "the table after two words (nobody else holds 7: write in place)")
    expect(
        first, [7, 1], f"the table of a sequence of {last} words, the pool handing out 7, then 1"
    )
    expect(_read(pool, first, last), prompt, "the words read through that table")

    second = fork(pool, first)
    expect(second, [7, 1], "the table of the fork")
    if second is first:
        raise Wrong("fork returned the same list, so a change of one table changes the other")
    expect(
        (pool.holders[7], pool.holders[1]), (2, 2), "the holders of blocks 7 and 1 after the fork"
    )

    append(pool, first, last, word)
    if pool.words[3] is pool.words[1]:
        raise Wrong("words[3] and words[1] are the same list: copy its words, as in list(..)")
    expect(_read(pool, second, last), prompt, f"the fork's words after the first wrote “{word}”")
    if pool.words[1][-1] == word:
        raise Wrong(f"“{word}” was written into block 1, which the fork holds, too; copy it first")
    expect(first, [7, 3], "the first's table after it wrote into the shared block (3 is the copy)")
    whole = f"{prompt} {word}"
    expect(_read(pool, first, last + 1), whole, "the first's words (did the copy have all?)")
    expect(pool.holders[1], 1, "the holders of block 1 after the first let go of it")
    expect(pool.holders[3], 1, "the holders of the copy")

    append(pool, second, last, "mothers")
    expect(second, [7, 1], "the fork's table: alone in block 1 by now, it writes in place")
    expect(_read(pool, second, last + 1), f"{prompt} mothers", "the fork's words")
    append(pool, second, last + 1, "carried")
    expect(second, [7, 1, 5], "the fork's table after one word more, which begins a block")
    expect(pool.holders[7], 2, "the holders of block 7, which is full and stays shared")


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
