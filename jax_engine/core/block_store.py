"""What a scheduler knows of blocks that are kept elsewhere than in memory: a protocol.

A store has the contents of blocks by their chains. It is asked where the device's prefix cache
ends, and what it has then need not be computed.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from jax_engine.core.prefix_cache import Node


class BlockStore(Protocol):
    """Has contents of blocks, of which the scheduler asks for a chain's next ones."""

    def find(self, nodes: Sequence[Node], *, waits: bool) -> "Contents | None":
        """The contents of the leading ones of `nodes`, each the child of the one before.

        Args:
            waits: Whether to wait until they are read, for a limited time.

        Returns:
            None: they are being read; ask again.
        """

    def use(self, nodes: Sequence[Node]) -> None:
        """A request begins with these nodes, the first of their chain: they are needed."""


type Contents = list[Any]
"""Arrays of the contents of one or several blocks each; `len` of one is how many."""


def num_blocks(contents: Contents) -> int:
    """How many blocks there are."""
    return sum(len(part) for part in contents)
