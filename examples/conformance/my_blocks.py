"""A block manager with a mistake, and what tests it: see "Testing your engine" in the docs.

paged-conformance block-manager my_blocks:make
"""

from typing import Any

from paged_conformance import Refused


class Blocks:
    """A free list, and the blocks of each sequence."""

    def __init__(self, *, block_size: int, num_blocks: int, num_swap_blocks: int) -> None:
        self.block_size, self.num_blocks = block_size, num_blocks
        self.free_blocks = list(range(num_blocks))
        self.tables: dict[int, list[int]] = {}
        self.lengths: dict[int, int] = {}

    def capacity(self) -> int:
        return self.num_blocks

    def num_free(self) -> int:
        return len(self.free_blocks)

    def open(self, *, seq: int, tokens: list[int], **_: Any) -> dict[str, int]:
        self.tables[seq], self.lengths[seq] = [], 0
        self.extend(seq=seq, tokens=tokens)
        return {"hit": 0}

    def extend(self, *, seq: int, tokens: list[int], **_: Any) -> list[list[int]]:
        for _token in tokens:
            if self.lengths[seq] % self.block_size == 0:
                if not self.free_blocks:
                    raise Refused("no block is free")
                self.tables[seq].append(self.free_blocks.pop())
            self.lengths[seq] += 1
        return []

    def computed(self, **_: Any) -> None:
        """Nothing is cached."""

    def table(self, *, seq: int) -> list[int]:
        return self.tables.get(seq, [])

    def free(self, *, seq: int) -> None:
        self.free_blocks += self.tables.pop(seq, [])


class RefusesFirst(Blocks):
    """The same, mended: it counts before it takes."""

    def extend(self, *, seq: int, tokens: list[int], **_: Any) -> list[list[int]]:
        num_blocks = -(-(self.lengths[seq] + len(tokens)) // self.block_size)
        if num_blocks - len(self.tables[seq]) > len(self.free_blocks):
            raise Refused("too few blocks are free")
        return super().extend(seq=seq, tokens=tokens)


make, mended = Blocks, RefusesFirst
