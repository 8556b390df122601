"""A pool of equal KV blocks: reference counts and a free list (paper 4.2, "KV Cache Manager").

GPU memory for keys and values is cut, once and for all, into blocks of the same size. Nothing is
ever moved to make room, because any free block is as good as any other: that is what ends external
fragmentation. A block may be held by several sequences at once (4.4); it is free again when the
last of them lets go, so each block carries a reference count.

The order in which free blocks are handed out is part of the specification, so that two
implementations can be compared block by block. There are two orders. A *stack* gives back the
block freed last, as vLLM did in 2023. A *queue* gives back the block freed first: when free blocks
still hold content that someone may ask for again (see `prefix_cache`), the one unused for longest
is the one to lose.

>>> stack = BlockAllocator("gpu", 3)
>>> stack.allocate(), stack.allocate()
(2, 1)
>>> stack.touch(2)                          # a second holder
>>> stack.free(2), stack.free_blocks        # ... lets go: block 2 is still in use
(False, [0])
>>> stack.free(2), stack.free_blocks
(True, [0, 2])
>>> queue = BlockAllocator("gpu", 3, fifo=True)
>>> queue.allocate(), queue.allocate(), queue.free(0), queue.free_blocks
(0, 1, True, [2, 0])
"""

from collections.abc import Sequence
from typing import Literal

Device = Literal["gpu", "cpu"]


class BlockError(RuntimeError):
    """A block operation that contradicts the state of the pool; the state is unchanged."""


class OutOfBlocksError(BlockError):
    """More blocks were asked for than are free; the state is unchanged."""


class BlockAllocator:
    """The blocks 0 .. num_blocks-1 of one device.

    `free_blocks` is the free list in order: a stack pops from its end, a queue from its head, and
    both put freed blocks at the end. Blocks that hold nothing are put where they are taken next.
    It starts as 0, 1, .. unless `free_order` says otherwise.
    """

    def __init__(
        self,
        device: Device,
        num_blocks: int,
        *,
        fifo: bool = False,
        free_order: Sequence[int] | None = None,
    ) -> None:
        self.device = device
        self.num_blocks = num_blocks
        self.fifo = fifo
        self.free_blocks = list(range(num_blocks) if free_order is None else free_order)
        self.ref_counts = [0] * num_blocks
        if sorted(self.free_blocks) != list(range(num_blocks)):
            raise ValueError(
                f"free_order={list(self.free_blocks)} must name each of the {num_blocks} blocks "
                f"0..{num_blocks - 1} once"
            )

    @property
    def num_free(self) -> int:
        return len(self.free_blocks)

    def allocate(self) -> int:
        """Hand out one free block, with reference count 1. Raises OutOfBlocksError."""
        if not self.free_blocks:
            raise OutOfBlocksError(
                f"no free {self.device} block: all {self.num_blocks} are in use; "
                "preempt a sequence first"
            )
        block = self.free_blocks.pop(0 if self.fifo else -1)
        self.ref_counts[block] = 1
        return block

    def touch(self, block: int) -> None:
        """Add a holder. A free block (one whose content was found again) leaves the free list."""
        self._check_known(block)
        if self.ref_counts[block] == 0:
            self.free_blocks.remove(block)
        self.ref_counts[block] += 1

    def free(self, block: int, *, is_next: bool = False) -> bool:
        """Take one holder away; True when it was the last and the block is free now.

        `is_next` puts it where it is the next to be handed out. Raises BlockError for a block that
        nobody holds ("double free") or that does not exist.
        """
        self._check_known(block)
        if self.ref_counts[block] == 0:
            raise BlockError(f"double free of {self.device} block {block}: nobody holds it")
        self.ref_counts[block] -= 1
        if self.ref_counts[block] == 0:
            self.free_blocks.insert(0 if self.fifo and is_next else len(self.free_blocks), block)
        return self.ref_counts[block] == 0

    def _check_known(self, block: int) -> None:
        if not 0 <= block < self.num_blocks:
            raise BlockError(
                f"{self.device} block {block} does not exist; the pool has blocks "
                f"0..{self.num_blocks - 1}"
            )
