"""Single scenarios of the block manager: misuse, and swapping by hand."""

import pytest

from reference.allocator import BlockError, OutOfBlocksError
from reference.blocks import BlockManager
from tests.reference.test_blocks import snapshot


@pytest.fixture
def manager() -> BlockManager:
    """Sequence 0 has two blocks of 4, sequence 1 is swapped out."""
    manager = BlockManager(4, 6, 2)
    for seq_id in (0, 1):
        manager.allocate_slots(seq_id, [1] * 7, 0, 7)
    manager.swap_out([1])
    return manager


def test_misuse_raises_and_changes_nothing(manager: BlockManager) -> None:
    """I7 and I8: operations on sequences that are elsewhere, or there already."""
    before = snapshot(manager)
    with pytest.raises(BlockError, match="sequence 1 is swapped out"):
        manager.allocate_slots(1, [1] * 8, 7, 8)
    with pytest.raises(BlockError, match="sequence 0 has a table; cached blocks"):
        manager.allocate_slots(0, [1] * 8, 7, 8, cached=[2])
    with pytest.raises(BlockError, match="sequence 0 has a table; only a new sequence"):
        manager.fork(1, 0)
    with pytest.raises(OutOfBlocksError, match="cannot swap out"):
        manager.swap_out([1])
    with pytest.raises(OutOfBlocksError, match="cannot swap in"):
        manager.swap_in([0])
    assert snapshot(manager) == before


def test_too_few_free_blocks_give_none_and_change_nothing(manager: BlockManager) -> None:
    """I28."""
    before = snapshot(manager)
    assert manager.blocks_needed(0, 7, 26) == 5 > manager.num_free_gpu_blocks
    assert manager.allocate_slots(0, [1] * 26, 7, 26) is None
    assert snapshot(manager) == before


def test_a_sequence_without_blocks_is_nowhere(manager: BlockManager) -> None:
    manager.fork(0, 2, num_blocks=0)
    assert manager.block_table(2) == [] and manager.device(2) is None
    assert manager.swap_out([2]) == manager.swap_in([2]) == []


def test_swapping_out_and_in_renames_blocks_and_keeps_sharing() -> None:
    """I14: the identity up to names; the family of Figure 8, in a pool of its own size."""
    manager = BlockManager(4, 4, 4, watermark=0.0)
    manager.allocate_slots(1, [1] * 7, 0, 7)
    manager.fork(1, 2)
    manager.allocate_slots(1, [1] * 8, 7, 8)
    assert [manager.block_table(i) for i in (1, 2)] == [[3, 1], [3, 2]]
    assert manager.swap_out([1, 2]) == [(3, 3), (1, 2), (2, 1)]
    assert manager.num_free_gpu_blocks == 4
    assert manager.swap_in([1, 2]) == [(3, 3), (2, 2), (1, 1)]
    assert [manager.block_table(i) for i in (1, 2)] == [[3, 2], [3, 1]]
    assert [manager.ref_count(block) for block in (1, 2, 3)] == [1, 1, 2]
