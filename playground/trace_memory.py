"""The memory of a traced run: blocks that hold words, in lists, so that a browser can run it too.

A word stands where `kv_cache` has the key and value of its token, and moves as these do. A test
holds the two together: the same writes and moves leave the same tokens in both.

>>> memory = WordMemory(num_blocks=2, block_size=2, num_cpu_blocks=1)
>>> memory.write(0, 1, "hope")
>>> memory.begin_step(swap_in=[], swap_out=[(0, 0)], copies=[(0, 1)])
>>> memory.gpu, memory.cpu
([[None, 'hope'], [None, 'hope']], [[None, 'hope']])
"""

from collections.abc import Sequence

from reference.blocks import BlockPair

Pool = list[list[str | None]]


class WordMemory:
    """`gpu` and `cpu`: of each block, its words; None where nothing was written."""

    def __init__(self, *, num_blocks: int, block_size: int, num_cpu_blocks: int) -> None:
        self.gpu: Pool = [[None] * block_size for _ in range(num_blocks)]
        self.cpu: Pool = [[None] * block_size for _ in range(num_cpu_blocks)]

    def begin_step(
        self,
        swap_in: Sequence[BlockPair],
        swap_out: Sequence[BlockPair],
        copies: Sequence[BlockPair],
    ) -> None:
        """What the scheduler asks for before the model runs, in the order of the step."""
        _move(self.cpu, self.gpu, swap_in)
        _move(self.gpu, self.cpu, swap_out)
        _move(self.gpu, self.gpu, copies)

    def write(self, block: int, offset: int, word: str) -> None:
        self.gpu[block][offset] = word


def _move(source: Pool, target: Pool, pairs: Sequence[BlockPair]) -> None:
    """target[dst] = source[src] for each (src, dst); all are read before any is written."""
    contents = [list(source[src]) for src, _ in pairs]
    for (_, dst), content in zip(pairs, contents, strict=True):
        target[dst] = content
