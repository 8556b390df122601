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


def test_trimming_gives_the_last_blocks_back_and_may_leave_none(manager: BlockManager) -> None:
    manager.allocate_slots(0, [1] * 7, 7, 15)
    assert manager.block_table(0) == [5, 4, 3, 2] and manager.gpu.free_blocks == [0, 1]
    for num_tokens, table in ((15, [5, 4, 3, 2]), (13, [5, 4, 3, 2]), (12, [5, 4, 3]), (4, [5])):
        manager.trim(0, num_tokens)
        assert manager.block_table(0) == table
    assert manager.gpu.free_blocks == [0, 1, 2, 3, 4]
    manager.trim(0, 0)
    assert manager.block_table(0) == [] and manager.device(0) is None
    for seq_id in (0, 7):  # no table any more, and never had one
        manager.trim(seq_id, 3)
    assert manager.num_free_gpu_blocks == 6


def test_a_shared_block_that_is_trimmed_loses_a_holder(manager: BlockManager) -> None:
    manager.fork(0, 2)
    manager.trim(2, 3)
    assert manager.block_table(2) == [5] and manager.block_table(0) == [5, 4]
    assert [manager.ref_count(block) for block in (5, 4)] == [2, 1]
    assert manager.num_free_gpu_blocks == 4


def test_what_cannot_be_trimmed_is_left_as_it_was(manager: BlockManager) -> None:
    before = snapshot(manager)
    with pytest.raises(BlockError, match=r"sequence 1 is swapped out; .* before it is trimmed"):
        manager.trim(1, 3)
    assert snapshot(manager) == before


def test_what_may_be_cached_is_not_trimmed() -> None:
    """What is trimmed is taken next, before blocks whose content is cached."""
    manager = BlockManager(4, 7, enable_prefix_caching=True)
    manager.allocate_slots(1, [5] * 4, 0, 4)
    manager.free(1)
    tokens = list(range(13))
    manager.allocate_slots(0, tokens, 0, 13)
    manager.allocate_slots(0, tokens, 13, 21)
    before = snapshot(manager)
    for num_tokens in (11, 8, 4, 1):
        with pytest.raises(BlockError, match=f"to {num_tokens} tokens: it has offered 3 blocks"):
            manager.trim(0, num_tokens)
    assert snapshot(manager) == before
    assert manager.block_table(0) == [1, 2, 3, 4, 5, 6] and manager.gpu.free_blocks == [0]
    manager.trim(0, 13)
    assert manager.block_table(0) == [1, 2, 3, 4] and manager.gpu.free_blocks == [5, 6, 0]
    manager.allocate_slots(0, tokens, 13, 21)
    assert manager.block_table(0) == [1, 2, 3, 4, 5, 6] and manager.cached_blocks([5] * 5) == [0]
    manager.trim(0, 12)
    assert manager.block_table(0) == [1, 2, 3] and manager.gpu.free_blocks == [4, 5, 6, 0]


def test_an_offer_is_for_full_blocks_and_who_has_some() -> None:
    manager = BlockManager(4, 6, 2, enable_prefix_caching=True, watermark=0.0)
    manager.offer(0, [1] * 8)
    assert manager.num_cached_blocks == 0
    manager.allocate_slots(0, [1], 0, 9)
    for num_tokens, num_cached in ((3, 0), (4, 1), (9, 2), (9, 2)):
        manager.offer(0, list(range(num_tokens)), "a")
        assert manager.num_cached_blocks == num_cached
    assert manager.cached_blocks(list(range(9)), "a") == manager.block_table(0)[:2]
    assert manager.cached_blocks(list(range(9))) == []
    manager.allocate_slots(1, [7], 0, 8)
    manager.swap_out([1])
    manager.offer(1, [7] * 8)
    manager.swap_in([1])
    manager.offer(1, [7] * 8)
    assert manager.num_cached_blocks == 2
