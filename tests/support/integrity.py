"""A look inside the engine's block manager: is its bookkeeping consistent, and did it change?

The product keeps redundant state for speed (free index, shared count, table rows, write room,
content index); `check_blocks_state` derives each of them again from the tables.
"""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from jax_engine.core import BlockManager
from jax_engine.core.prefix_cache import Node, Salt

type Contents = tuple[tuple[int, ...], Salt | tuple[Salt, ...]]
"""All tokens up to the end of a cached block, and the salt."""


class TableState(NamedTuple):
    """What is checked of a `BlockTable`."""

    ids: list[int]
    row: list[int]
    device: str
    room: int
    num_tried: int
    registers: bool


class PoolState(NamedTuple):
    """The blocks of one device; free ones in the order in which they are taken."""

    refs: list[int]
    free: list[int]
    num_shared: int
    num_refs: int


@dataclass(frozen=True)
class BlocksState:
    """A block manager as plain values, for bit-identical comparison (I7, I8, I28).

    Attributes:
        tables: By sequence.
        cached: What the prefix cache says each of its blocks holds.
        found: Where it says a content is.
    """

    block_size: int
    table_width: int
    pools: dict[str, PoolState]
    num_used: int
    tables: dict[int, TableState]
    cached: dict[int, Contents]
    found: dict[Contents, int]

    def block_table(self, seq_id: int) -> list[int]:
        return self.tables[seq_id].ids if seq_id in self.tables else []

    def device(self, seq_id: int) -> str | None:
        return self.tables[seq_id].device if seq_id in self.tables else None


def contents(node: Node | None) -> Contents:
    """Its tokens, and its salt; or the salts of all blocks, if these are not the same."""
    tokens: tuple[int, ...] = ()
    salts: tuple[Salt, ...] = ()
    while node is not None:
        tokens, salts, node = node.tokens + tokens, (node.salt, *salts), node.parent
    return tokens, salts if len(set(salts)) > 1 else next(iter(salts), None)


def cached_contents(blocks: BlockManager) -> dict[int, Contents]:
    """What the prefix cache says each of its blocks holds."""
    return {block: contents(node) for block, node in blocks._cache._nodes.items()}


def snapshot(blocks: BlockManager) -> BlocksState:
    """The whole state."""
    pools = {
        pool.device: PoolState(
            list(pool.refs), pool.next_blocks(pool.num_free), pool.num_shared, pool.num_refs
        )
        for pool in (blocks.gpu, blocks.cpu)
    }
    tables = {
        seq_id: TableState(list(t.ids), t.row.tolist(), t.device, t.room, t.num_tried, t.registers)
        for seq_id, t in blocks.tables.items()
    }
    found = {contents(node): block for node, block in blocks._cache._blocks.items()}
    return BlocksState(
        blocks.block_size, blocks.table_width, pools, blocks.num_used_gpu_blocks, tables,
        cached_contents(blocks), found,
    )  # fmt: skip


def check_integrity(blocks: BlockManager) -> None:
    """Does what `check_blocks_state` does, of a block manager."""
    check_blocks_state(snapshot(blocks))


def check_blocks_state(blocks: BlocksState) -> None:
    """I1 to I4 from the inside, and everything that is derived from the tables."""
    for device, pool in blocks.pools.items():
        tables = [table for table in blocks.tables.values() if table.device == device]
        held = Counter(block for table in tables for block in table.ids)
        assert pool.refs == [held[block] for block in range(len(pool.refs))], "I1"
        unused = [block for block, refs in enumerate(pool.refs) if refs == 0]
        assert sorted(pool.free) == unused, "I2, I3"
        assert pool.num_shared == sum(refs > 1 for refs in pool.refs)
        assert pool.num_refs == sum(pool.refs) == sum(len(table.ids) for table in tables)
    for table in blocks.tables.values():
        _check_table(blocks, table)
    assert {block: content for content, block in blocks.found.items()} == blocks.cached
    gpu = blocks.pools["gpu"]
    assert blocks.num_used == len(gpu.refs) - len(gpu.free)


def _check_table(blocks: BlocksState, table: TableState) -> None:
    assert len(set(table.ids)) == len(table.ids) > 0, "I4"
    assert table.row == table.ids + [0] * (len(table.row) - len(table.ids))
    assert len(table.row) == blocks.table_width
    if table.room:  # the promise behind the fast path: nobody else holds the block written next
        last = (table.room - 1) // blocks.block_size
        assert table.device == "gpu" and blocks.pools["gpu"].refs[table.ids[last]] == 1, "I10"
    assert table.num_tried <= len(table.ids)
