"""§4.3, blocks: the pool of each memory, block tables, and moving tables between memories.

A physical block is only a number here; its memory lives in the worker. A `BlockPool` keeps the free
blocks of one memory and the reference counts of all. Apart from `clear` and `free_blocks`, none of
its operations takes time in the size of the pool.

A `BlockTable` says where the KV of a sequence lies: logical block i is physical block `ids[i]`.

Swapping (§4.5) moves the tables of a sequence group to the other memory and keeps what they share.
Only block numbers move; the mapping that is returned tells the worker which contents to copy.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np
from jaxtyping import Int32

from jax_engine.core.prefix_cache import Node
from jax_engine.errors import JaxEngineError


class BlockError(JaxEngineError, RuntimeError):
    """A block operation that would corrupt the tables; it was refused and changed nothing."""


class OutOfBlocksError(BlockError):
    """A pool has fewer free blocks than were asked for."""


class BlockPool:
    """Reference counts and the free blocks of one device.

    Args:
        device: "gpu" or "cpu", for messages.
        num_blocks: Size of the pool; blocks are numbered 0 .. num_blocks - 1.
        lru: Allocate the block that has been free for longest, so that cached contents live as
            long as possible. Otherwise the one freed last, whose memory is warm.

    Attributes:
        refs: Reference count of each block; 0 exactly when it is free.
        num_shared: Blocks with more than one reference.
        num_refs: References to all blocks: the blocks that would be in use without sharing.
    """

    __slots__ = (
        "_free", "_newest_first", "device", "num_blocks", "num_refs", "num_shared", "refs",
    )  # fmt: skip

    def __init__(self, device: str, num_blocks: int, *, lru: bool = False) -> None:
        self.device = device
        self.num_blocks = num_blocks
        self._newest_first = not lru
        self.clear()

    def clear(self) -> None:
        """Frees all blocks, whatever their reference counts; takes O(num_blocks)."""
        self.refs = [0] * self.num_blocks
        self.num_shared = 0
        self.num_refs = 0
        # A linked list with an index: constant time at both ends and, for cache hits, in the middle
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(self.num_blocks))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def next_blocks(self, count: int) -> list[int]:
        """The blocks that `allocate` will return next, in order; at most `num_free`."""
        order = reversed(self._free) if self._newest_first else iter(self._free)
        return list(islice(order, count))

    def allocate(self) -> int:
        """Takes a free block and gives it its first reference.

        Raises:
            OutOfBlocksError: None is free.
        """
        if not self._free:
            raise OutOfBlocksError(
                f"num_free_{self.device}_blocks is 0 of {self.num_blocks}, 1 is needed: "
                "free or swap out a sequence first"
            )
        block = self._free.popitem(last=self._newest_first)[0]
        self.refs[block] = 1
        self.num_refs += 1
        return block

    def share(self, block: int) -> None:
        """Adds a reference; a free block, whose content is still cached, comes back into use.

        Raises:
            BlockError: No such block.
        """
        refs = self.refs[self._known(block)]
        if refs == 0:
            del self._free[block]
        elif refs == 1:
            self.num_shared += 1
        self.refs[block] = refs + 1
        self.num_refs += 1

    def free(self, block: int) -> None:
        """Drops a reference; with the last one the block becomes free.

        Raises:
            BlockError: No such block, or it is free already.
        """
        refs = self.refs[self._known(block)]
        if refs == 0:
            raise BlockError(
                f"{self.device} block {block} has 0 references, at least 1 is needed to free it: "
                "double free; a table was freed twice or edited by hand"
            )
        self.refs[block] = refs - 1
        self.num_refs -= 1
        if refs == 1:
            self._free[block] = None
        elif refs == 2:
            self.num_shared -= 1

    def free_all(self, blocks: Sequence[int]) -> None:
        """Drops a reference of each, last block first: LRU evicts a prefix after its successors."""
        for block in reversed(blocks):
            self.free(block)

    def return_all(self, blocks: Sequence[int]) -> None:
        """As `free_all`, of blocks without contents: they are the next to be allocated again.

        Anywhere else in the order, blocks whose contents are cached would be lost before them.
        """
        for block in reversed(blocks):
            self.free(block)
            if not self.refs[block]:
                self._free.move_to_end(block, last=self._newest_first)

    def _known(self, block: int) -> int:
        if not 0 <= block < self.num_blocks:  # a negative index would quietly hit another block
            raise BlockError(
                f"{self.device} block {block} is not in [0, {self.num_blocks}): "
                "use an id that this pool handed out"
            )
        return block


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

    def fill(self, blocks: list[int]) -> None:
        """Puts physical blocks in the place of as many or of none; they fit into W."""
        self.row[: len(blocks)] = blocks
        self.ids = blocks

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
        self.fill(blocks)
        self.device = device
        self.room = 0
        self.num_tried = 0
        self.registers = False

    def prefix(self, num_blocks: int) -> "BlockTable":
        """A table of the first `num_blocks` blocks, for a fork.

        The chain may be ahead of what is computed: a fork may fill those blocks with other tokens.
        """
        child = BlockTable(len(self.row), [], self.prompt_len)
        child.fill(self.ids[:num_blocks])
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


def distinct_blocks(tables: Sequence[BlockTable]) -> int:
    """Counts the physical blocks that the tables use; a shared block counts once."""
    return len({block for table in tables for block in table.ids})


def can_move(
    tables: Sequence[BlockTable], source: BlockPool, target: BlockPool, reserve: int
) -> bool:
    """Whether all tables are on the source and fit into the target with `reserve` left free."""
    return (
        all(table.device == source.device for table in tables)
        and target.num_free - distinct_blocks(tables) >= reserve
    )


def move_tables(
    tables: Sequence[BlockTable],
    source: BlockPool,
    target: BlockPool,
    *,
    reserve: int,
    allocate: Callable[[], int],
) -> list[tuple[int, int]]:
    """Moves every table, in the order given, and drops its references to the old blocks.

    Args:
        tables: Tables of one sequence group.
        source: Pool of the old blocks.
        target: Pool of the new blocks.
        reserve: Blocks of the target to leave free.
        allocate: Takes a block out of `target` (the GPU's also forgets its cached content).

    Returns:
        (source block, target block) pairs, each block once, in order of first use.

    Raises:
        OutOfBlocksError: `can_move` is false; nothing changed.
    """
    if not can_move(tables, source, target, reserve):
        raise OutOfBlocksError(
            f"swapping needs {distinct_blocks(tables)} {target.device} blocks, {target.num_free} "
            f"are free and {reserve} of them stay so (or a table is not on the {source.device}): "
            "ask can_swap_in or can_swap_out first"
        )
    mapping: dict[int, int] = {}
    for table in tables:
        for block in table.ids:
            if block in mapping:
                target.share(mapping[block])
            else:
                mapping[block] = allocate()
        old = table.ids
        table.move([mapping[block] for block in old], target.device)
        source.free_all(old)
    return list(mapping.items())
