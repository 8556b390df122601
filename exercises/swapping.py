"""Exercise: swap sequences out and in (paper 4.5).

The GPU and the CPU each have a pool of blocks. A request whose sequences share blocks moves as a
whole from one to the other. Write both functions:

- `move(source, target, tables)` changes the block tables, lists of blocks of the source, so that
  they name blocks of the target. A block that several tables name moves once, and is shared there.
  The sequences let go of their blocks of the source; somebody else may hold one still. It returns
  the pairs (block of the source, block of the target) whose words are to be copied. If the target
  has too few free blocks, raise NoRoomError, with nothing changed.
- `begin_step(gpu, cpu, swap_in, swap_out, copies)` copies the words of such pairs: `swap_in` has
  (CPU block, GPU block), `swap_out` (GPU block, CPU block), `copies` (GPU block, GPU block), made
  for copy on write. No block is both in `swap_in` and `swap_out`. But a copy may read a block that
  has just come in, or write over one whose words have just gone out.

Given is `Pool`. Run it: python -m exercises.swapping
"""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from exercises.checking import Wrong, expect, must_raise, report, returned
from exercises.variants import given_seed

Table = list[int]
Pairs = list[tuple[int, int]]


class NoRoomError(Exception):
    """The target has too few free blocks."""


class Pool:
    """The words of each block, how many hold it, and which are free: the last of them is next."""

    def __init__(self, num_blocks: int) -> None:
        self.words = [["-"] for _ in range(num_blocks)]
        self.holders = [0] * num_blocks
        self.free = list(range(num_blocks))

    def take(self) -> int:
        """A free block; it has one holder then."""
        block = self.free.pop()
        self.holders[block] = 1
        return block

    def share(self, block: int) -> None:
        """One holder more."""
        self.holders[block] += 1

    def let_go(self, block: int) -> None:
        """One holder less; without holders the block is free."""
        self.holders[block] -= 1
        if self.holders[block] == 0:
            self.free.append(block)


def move(source: Pool, target: Pool, tables: Sequence[Table]) -> Pairs:
    raise NotImplementedError


def begin_step(gpu: Pool, cpu: Pool, swap_in: Pairs, swap_out: Pairs, copies: Pairs) -> None:
    raise NotImplementedError


Answer = tuple[
    Callable[[Pool, Pool, Sequence[Table]], Pairs],
    Callable[[Pool, Pool, Pairs, Pairs, Pairs], None],
]


class Numbers(NamedTuple):
    """What a seed changes: the sequences of the request, and the blocks that each has alone."""

    num_sequences: Annotated[int, range(3, 6)] = 2
    own_blocks: Annotated[int, range(2, 4)] = 1


def check(answer: Answer | None = None, seed: int = 0) -> bool:
    """Print what is wrong with (move, begin_step); True if nothing is."""
    return report(_test, answer or (move, begin_step), Numbers, seed)


def _request(gpu: Pool, numbers: Numbers) -> list[Table]:
    """Sequences that share their first block."""
    first = gpu.take()
    tables = []
    for name in range(numbers.num_sequences):
        tables.append([first, *(gpu.take() for _ in range(numbers.own_blocks))])
        for block in tables[-1][1:]:
            gpu.words[block] = [f"word {block} of sequence {name}"]
        gpu.holders[first] = name + 1
    gpu.words[first] = ["the first word"]
    return tables


def _read(pool: Pool, tables: Sequence[Table]) -> list[str]:
    return [" ".join(pool.words[block][0] for block in table) for table in tables]


def _test(answer: Answer, numbers: Numbers) -> None:
    move, begin_step = answer
    k, own = numbers
    distinct = 1 + k * own
    gpu, cpu = Pool(distinct + 2), Pool(distinct - 1)
    tables = _request(gpu, numbers)
    words = _read(gpu, tables)
    what = f"move of {distinct} blocks to a CPU with {distinct - 1} free ones"
    must_raise(NoRoomError, lambda: move(gpu, cpu, tables), what)
    expect(_read(gpu, tables), words, "what the tables name after that error (nothing changes)")
    counts = (len(gpu.free), len(cpu.free))
    expect(counts, (2, distinct - 1), "the free blocks of both after that error (nothing changes)")

    cpu = Pool(distinct)
    gpu.share(tables[0][0])  # another request's, which stays
    first = tables[0][0]
    given = list(tables)
    pairs = returned(move(gpu, cpu, tables), "move")
    what = f"the number of pairs for {k} sequences that share a block (it moves once)"
    expect(len(pairs), distinct, what)
    if any(old is not new for old, new in zip(given, tables, strict=True)):
        raise Wrong("the tables are other lists now: change those that are given")
    for source, target in pairs:
        cpu.words[target] = list(gpu.words[source])
    expect(_read(cpu, tables), words, "what the tables name on the CPU, once the pairs are copied")
    expect(cpu.holders[tables[0][0]], k, "the holders of the shared block on the CPU")
    expect(cpu.holders[tables[0][-1]], 1, "the holders of a block there that one sequence has")
    expect(gpu.holders[first], 1, "the holders left of the shared block, held by another request")
    expect(len(gpu.free), distinct + 1, "the free blocks of the GPU (all but that one)")
    back = move(cpu, gpu, tables)
    for source, target in back:
        gpu.words[target] = list(cpu.words[source])
    expect(_read(gpu, tables), words, "what the tables name on the GPU after the way back")
    expect(len(cpu.free), distinct, "the free blocks of the CPU after the way back")
    _test_step(begin_step, distinct)


def _test_step(begin_step: Callable[..., None], count: int) -> None:
    def words_after(**lists: Pairs) -> tuple[Pool, Pool]:
        gpu, cpu = Pool(count + 4), Pool(count + 4)
        for pool, name in ((gpu, "g"), (cpu, "c")):
            pool.words = [[f"{name}{block}"] for block in range(count + 4)]
        begin_step(gpu, cpu, *(lists.get(name, []) for name in ("swap_in", "swap_out", "copies")))
        return gpu, cpu

    outs = [(block, block + 1) for block in range(count)]
    gpu, cpu = words_after(swap_out=outs, copies=[(count + 1, 0)])
    what = "the CPU's words of what went out of block 0, over which a copy was made"
    expect(cpu.words[1], ["g0"], what)
    expect(cpu.words[count], [f"g{count - 1}"], "the CPU's words of the last pair of swap_out")
    expect(gpu.words[0], [f"g{count + 1}"], "the GPU's words of the copy")
    ins = [(block + 2, block) for block in range(count)]
    gpu, cpu = words_after(swap_in=ins, copies=[(0, count + 1)])
    expect(gpu.words[0], ["c2"], "the GPU's words of what came in")
    expect(gpu.words[count + 1], ["c2"], "the copy of a block that has just come in")
    if any(one is other for one in gpu.words for other in cpu.words):
        raise Wrong("a GPU block and a CPU block are the same list: copy the words, as in list(..)")


if __name__ == "__main__":
    raise SystemExit(not check(seed=given_seed()))
