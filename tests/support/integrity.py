"""A look inside the engine's block manager: is its bookkeeping consistent, and did it change?

The product keeps redundant state for speed (free index, shared count, table rows, write room,
content index); `check_integrity` derives each of them again from the tables.
"""

from collections import Counter
from typing import Any

from jax_engine.core import BlockManager
from jax_engine.core.block_table import BlockTable
from jax_engine.core.prefix_cache import Node


def contents(node: Node | None) -> tuple[tuple[int, ...], str | None]:
    """All tokens up to the end of a cached block, and the salt."""
    tokens: tuple[int, ...] = ()
    salt = None
    while node is not None:
        tokens, salt, node = node.tokens + tokens, node.salt, node.parent
    return tokens, salt


def cached_contents(blocks: BlockManager) -> dict[int, tuple[tuple[int, ...], str | None]]:
    """What the prefix cache says each of its blocks holds."""
    return {block: contents(node) for block, node in blocks._cache._nodes.items()}


def snapshot(blocks: BlockManager) -> dict[str, Any]:
    """The whole state as plain values, for bit-identical comparison (I7, I8, I28)."""
    return {
        "refs": [list(pool.refs) for pool in (blocks.gpu, blocks.cpu)],
        "free": [pool.next_blocks(pool.num_free) for pool in (blocks.gpu, blocks.cpu)],
        "tables": {
            seq_id: (list(t.ids), t.row.tolist(), t.device, t.room, t.num_tried, t.registers)
            for seq_id, t in blocks.tables.items()
        },
        "cached": cached_contents(blocks),
    }


def check_integrity(blocks: BlockManager) -> None:
    """I1 to I4 from the inside, and everything that is derived from the tables."""
    for pool in (blocks.gpu, blocks.cpu):
        tables = [table for table in blocks.tables.values() if table.device == pool.device]
        held = Counter(block for table in tables for block in table.ids)
        assert pool.refs == [held[block] for block in range(pool.num_blocks)], "I1"
        unused = [block for block, refs in enumerate(pool.refs) if refs == 0]
        assert sorted(pool.next_blocks(pool.num_free)) == unused, "I2, I3"
        assert pool.num_shared == sum(refs > 1 for refs in pool.refs)
        assert pool.num_refs == sum(pool.refs) == sum(len(table.ids) for table in tables)
    for table in blocks.tables.values():
        _check_table(blocks, table)
    cache = blocks._cache
    assert {block: node for node, block in cache._blocks.items()} == cache._nodes
    assert blocks.num_used_gpu_blocks == blocks.num_gpu_blocks - blocks.num_free_gpu_blocks


def _check_table(blocks: BlockManager, table: BlockTable) -> None:
    assert len(set(table.ids)) == len(table.ids) > 0, "I4"
    assert table.row.tolist() == table.ids + [0] * (len(table.row) - len(table.ids))
    assert len(table.row) == blocks.table_width
    if table.room:  # the promise behind the fast path: nobody else holds the block written next
        last = (table.room - 1) // blocks.block_size
        assert table.device == "gpu" and blocks.gpu.refs[table.ids[last]] == 1, "I10"
    assert table.num_tried <= len(table.ids)
