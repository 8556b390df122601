"""What has come into the prefix cache and gone from it, for routers outside of the engine.

A router that knows which blocks an engine holds sends a prompt where most of it is cached. So
each block that a prompt could hit is told when it enters the index, and when it leaves it.
"""

from typing import NamedTuple

from jax_engine.core.prefix_cache import Node


class BlocksStored(NamedTuple):
    """Blocks have entered the index, each the child of the one before it."""

    nodes: tuple[Node, ...]


class BlockEvicted(NamedTuple):
    """A block has left the index: it is about to be overwritten."""

    node: Node


class CacheCleared(NamedTuple):
    """All blocks have left the index."""


type KVEvent = BlocksStored | BlockEvicted | CacheCleared


class KVEvents:
    """The events since they were last taken, in their order."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: list[KVEvent] = []

    def stored(self, nodes: list[Node]) -> None:
        """These nodes have entered the index; runs of children and parents are one event each."""
        first = 0
        for index in range(1, len(nodes) + 1):
            if index == len(nodes) or nodes[index].parent is not nodes[index - 1]:
                self._events.append(BlocksStored(tuple(nodes[first:index])))
                first = index

    def evicted(self, node: Node) -> None:
        self._events.append(BlockEvicted(node))

    def cleared(self) -> None:
        """The index is empty. What was not taken yet need not be told any more."""
        self._events = [CacheCleared()]

    def take(self) -> list[KVEvent]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events
