"""§4.3, the block engine: the free physical blocks of one memory, and the reference counts of all.

A physical block is only a number here; its memory lives in the worker. Apart from `clear` and
`free_blocks`, no operation's time depends on the size of the pool.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice

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
