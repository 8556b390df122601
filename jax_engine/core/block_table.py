"""§4.3, the block table: logical block i of a sequence lies in physical block `ids[i]`."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int32

from jax_engine.core.block_pool import BlockError
from jax_engine.core.prefix_cache import Node


class BlockTable:
    """Where the KV of one sequence lies.

    Attributes:
        ids: Physical blocks, in logical order.
        row: `ids`, zero-padded to W entries. The worker stacks rows into a step's tables.
        device: "gpu" or "cpu"; a table never lies on both.
        room: A write of positions below this one needs no block, no copy and no bookkeeping.
            0 if unknown.
        chain: Content nodes of the leading full blocks.
        num_tried: Leading full blocks that were offered to the prefix cache; 0 once it was moved.
        prompt_len: Tokens of the sequence's prompt, or MIXED if it reads cached blocks that it
            would have computed to other bits: its own blocks then are like nobody's.
        registers: False once the table was swapped in: its blocks hold copies.
    """

    __slots__ = ("chain", "device", "ids", "num_tried", "prompt_len", "registers", "room", "row")

    def __init__(self, width: int, chain: list[Node], prompt_len: int) -> None:
        self.ids: list[int] = []
        self.row: Int32[np.ndarray, " W"] = np.zeros(width, np.int32)
        self.device = "gpu"
        self.room = 0
        self.chain = chain
        self.prompt_len = prompt_len
        self.num_tried = 0
        self.registers = True

    def append(self, block: int) -> None:
        """Appends one physical block; the caller has checked that it fits into W."""
        self.row[len(self.ids)] = block
        self.ids.append(block)

    def extend(self, blocks: list[int]) -> None:
        """Appends physical blocks; the caller has checked that they fit into W."""
        end = len(self.ids)
        self.row[end : end + len(blocks)] = blocks
        self.ids += blocks

    def cut(self, num_blocks: int) -> list[int]:
        """Removes the physical blocks behind the first `num_blocks`, and returns them."""
        removed = self.ids[num_blocks:]
        del self.ids[num_blocks:]
        self.row[num_blocks : num_blocks + len(removed)] = 0
        return removed

    def replace(self, index: int, block: int) -> None:
        """Puts another physical block behind logical block `index` (copy-on-write)."""
        self.ids[index] = block
        self.row[index] = block

    def move(self, blocks: list[int], device: str) -> None:
        """Moves the logical blocks to physical blocks of another device.

        A table that was swapped in is never registered again: the original may still be cached.
        """
        self.ids = []
        self.extend(blocks)
        self.device = device
        self.room = 0
        self.num_tried = 0
        self.registers = False

    def prefix(self, num_blocks: int) -> "BlockTable":
        """A table of the first `num_blocks` blocks, for a fork.

        The chain may be ahead of what is computed: a fork may fill those blocks with other tokens.
        """
        child = BlockTable(len(self.row), [], self.prompt_len)
        child.extend(self.ids[:num_blocks])
        child.device = self.device
        child.num_tried = min(self.num_tried, num_blocks)
        child.chain = self.chain[: child.num_tried]
        child.registers = self.registers
        return child

    def check_writable(self, seq_id: int, cached: Sequence[int]) -> None:
        """
        Raises:
            BlockError: The table is not on the GPU, or cache hits come too late for it.
        """
        if self.device != "gpu":
            raise BlockError(f"seq_id {seq_id} is on the cpu: swap it in before it is written")
        if cached:
            raise BlockError(
                f"seq_id {seq_id} has {len(self.ids)} blocks, cached hits need 0: free it first"
            )
