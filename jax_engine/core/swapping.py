"""§4.5, swapping: moves the tables of a sequence group to the other device and keeps sharing.

Only block numbers move here; the mappings returned tell the worker which contents to copy.
"""

from collections.abc import Callable, Sequence

from jax_engine.core.block_pool import BlockPool, OutOfBlocksError
from jax_engine.core.block_table import BlockTable


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
