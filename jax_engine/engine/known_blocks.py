"""The blocks of prompts that an engine should have in its prefix cache, as their sender knows."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence


class KnownBlocks:
    """Names of blocks, those that are unused for longest first.

    A block's name stands for its content and all before it. So a block counts only behind those
    that precede it in its prompt.

    Args:
        most: How many blocks are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: OrderedDict[Hashable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._names

    def first(self, blocks: Sequence[Hashable]) -> int:
        """How many of a prompt's first blocks are here."""
        for count, one in enumerate(blocks):
            if one not in self._names:
                return count
        return len(blocks)

    def add(self, blocks: Sequence[Hashable]) -> None:
        """The engine will have these blocks of a prompt, and no longer those that are too many.

        Blocks at a prompt's end are given up before those in front of them, without which they
        could not be found.
        """
        for one in reversed(blocks):
            self._names[one] = None
            self._names.move_to_end(one)
        while len(self._names) > self._most:
            self._names.popitem(last=False)

    def clear(self) -> None:
        """The engine has emptied its prefix cache."""
        self._names.clear()
