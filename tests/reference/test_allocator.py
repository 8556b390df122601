"""The pool of blocks: what it refuses, and that it stays whole when it does."""

import copy
from typing import Any

import pytest

from reference.allocator import BlockAllocator, BlockError, OutOfBlocksError


@pytest.fixture
def pool() -> BlockAllocator:
    """Two blocks: 1 is in use, 0 is free."""
    pool = BlockAllocator("gpu", 2)
    assert pool.allocate() == 1
    return pool


@pytest.mark.parametrize(
    ("operation", "block", "message"),
    [
        ("free", 0, "double free of gpu block 0"),
        ("free", 2, r"gpu block 2 does not exist; the pool has blocks 0\.\.1"),
        ("free", -1, "gpu block -1 does not exist"),
        ("touch", 2, "gpu block 2 does not exist"),
    ],
)
def test_contradictions_raise_and_change_nothing(
    pool: BlockAllocator, operation: str, block: int, message: str
) -> None:
    """I7: double free and unknown ids."""
    before: Any = copy.deepcopy(vars(pool))
    with pytest.raises(BlockError, match=message):
        getattr(pool, operation)(block)
    assert vars(pool) == before


def test_an_empty_pool_raises_and_changes_nothing(pool: BlockAllocator) -> None:
    """I7: allocate on an empty pool."""
    pool.allocate()
    before: Any = copy.deepcopy(vars(pool))
    with pytest.raises(OutOfBlocksError, match="no free gpu block: all 2 are in use"):
        pool.allocate()
    assert vars(pool) == before


def test_a_touched_free_block_leaves_the_free_list(pool: BlockAllocator) -> None:
    pool.touch(0)
    assert pool.free_blocks == [] and pool.ref_counts == [1, 1]


def test_a_free_order_names_each_block_once() -> None:
    with pytest.raises(ValueError, match="must name each of the 2 blocks"):
        BlockAllocator("cpu", 2, free_order=[0, 0])
