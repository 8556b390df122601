"""I7, I8, I12, I14, I26 to I29 on the block manager, the rows the worker packs, and the gauges."""

import numpy as np
import pytest

from jax_engine.core import BlockError, BlockManager, OutOfBlocksError
from tests.support.integrity import check_integrity, snapshot

PROMPT = list(range(8))


def test_i28_lacking_blocks_change_nothing() -> None:
    blocks = BlockManager(2, 4, enable_prefix_caching=True)
    blocks.allocate_slots(0, PROMPT, 0, 6)
    blocks.free(0)
    blocks.allocate_slots(1, [9, 9], 0, 2)
    before = snapshot(blocks)
    hits = blocks.cached_blocks(PROMPT)
    assert len(hits) == 3  # free, so they count towards what is needed
    assert blocks.allocate_slots(2, PROMPT, 6, 8, cached=hits) is None
    assert snapshot(blocks) == before


@pytest.mark.parametrize("forks", [False, True])
def test_a_duplicate_is_offered_to_the_cache_once(forks: bool) -> None:
    """It stays out when the block that was there first is gone; and so it does in a fork."""
    blocks = BlockManager(2, 4, enable_prefix_caching=True)
    blocks.allocate_slots(0, PROMPT, 0, 2)
    blocks.allocate_slots(1, PROMPT, 0, 2)  # computed at the same time
    blocks.free(0)
    if forks:
        blocks.fork(1, 2)
        blocks.free(1)
    blocks.allocate_slots(3, [9] * 6, 0, 6)  # takes the block that was there first
    blocks.free(3)
    blocks.allocate_slots(2 if forks else 1, PROMPT, 2, 4)  # another full block
    assert blocks.cached_blocks(PROMPT) == []


def test_i8_swapping_what_does_not_fit_is_refused() -> None:
    blocks = BlockManager(2, 4, 1)
    blocks.allocate_slots(0, PROMPT, 0, 4)
    before = snapshot(blocks)
    assert not blocks.can_swap_out([0])
    with pytest.raises(OutOfBlocksError, match="needs 2 cpu blocks, 1 are free"):
        blocks.swap_out([0])
    assert not blocks.can_swap_in([0], 0)  # it is not there
    with pytest.raises(OutOfBlocksError, match="a table is not on the cpu"):
        blocks.swap_in([0])
    assert snapshot(blocks) == before


def test_i8_swapping_in_keeps_the_watermark() -> None:
    blocks = BlockManager(2, 4, 4, watermark=0.5)
    blocks.allocate_slots(0, PROMPT, 0, 6)
    blocks.swap_out([0])
    before = snapshot(blocks)
    with pytest.raises(OutOfBlocksError, match="4 are free and 2 of them stay so"):
        blocks.swap_in([0])
    assert snapshot(blocks) == before


def test_a_swapped_out_sequence_cannot_be_written() -> None:
    blocks = BlockManager(2, 4, 4)
    blocks.allocate_slots(0, PROMPT, 0, 3)
    blocks.swap_out([0])
    before = snapshot(blocks)
    with pytest.raises(BlockError, match="seq_id 0 is on the cpu: swap it in"):
        blocks.allocate_slots(0, PROMPT, 3, 4)
    assert snapshot(blocks) == before


def test_hits_come_too_late_for_a_table() -> None:
    blocks = BlockManager(2, 4, enable_prefix_caching=True)
    blocks.allocate_slots(0, PROMPT, 0, 2)
    with pytest.raises(BlockError, match="seq_id 0 has 1 blocks, cached hits need 0"):
        blocks.allocate_slots(0, PROMPT, 2, 4, cached=blocks.block_table(0))


def test_a_table_does_not_outgrow_its_row() -> None:
    blocks = BlockManager(2, 8, table_width=2)
    with pytest.raises(BlockError, match="needs 3 blocks for 5 tokens, table_width is 2"):
        blocks.allocate_slots(0, PROMPT, 0, 5)
    assert blocks.num_used_gpu_blocks == 0 and not blocks.tables


def test_i7_forks_that_would_corrupt_are_refused() -> None:
    blocks = BlockManager(2, 8)
    blocks.allocate_slots(0, PROMPT, 0, 4)
    blocks.allocate_slots(1, PROMPT, 0, 4)
    before = snapshot(blocks)
    with pytest.raises(BlockError, match="seq_id 1 has a block table already"):
        blocks.fork(0, 1)
    with pytest.raises(BlockError, match="num_blocks 3 exceeds the 2 blocks of seq_id 0"):
        blocks.fork(0, 2, 3)
    assert snapshot(blocks) == before


def test_i12_nothing_to_share_leaves_no_table() -> None:
    blocks = BlockManager(2, 8, 2)
    blocks.fork(0, 1)
    blocks.allocate_slots(0, PROMPT, 0, 4)
    blocks.fork(0, 1, 0)
    assert blocks.block_table(1) == [] and blocks.device(1) is None
    assert blocks.can_swap_out([0, 1]) and len(blocks.swap_out([0, 1])) == 2


def test_rows_follow_the_tables() -> None:
    blocks = BlockManager(2, 8, 8, table_width=5)
    blocks.allocate_slots(0, PROMPT, 0, 3)
    rows = blocks.block_table_rows([0])
    assert rows.dtype == np.int32 and rows.tolist() == [[7, 6, 0, 0, 0]]
    blocks.fork(0, 1)
    assert blocks.allocate_slots(0, PROMPT, 3, 4) == [(6, 5)]  # copy-on-write
    assert rows.tolist() == [[7, 6, 0, 0, 0]], "a step keeps the tables of its time"
    assert blocks.block_table_rows([1, 0]).tolist() == [[7, 6, 0, 0, 0], [7, 5, 0, 0, 0]]
    blocks.swap_out([1])
    blocks.swap_in([1])
    assert blocks.block_table_rows([1])[0, :2].tolist() == blocks.block_table(1)
    check_integrity(blocks)
    with pytest.raises(BlockError, match="seq_id 9 has no block table"):
        blocks.block_table_rows([0, 9])


def test_gauges() -> None:
    blocks = BlockManager(2, 8, 4)
    blocks.allocate_slots(0, PROMPT, 0, 4)
    blocks.fork(0, 1)
    assert (blocks.num_used_gpu_blocks, blocks.num_shared_blocks) == (2, 2)
    assert blocks.num_free_cpu_blocks == 4
    blocks.swap_out([0, 1])
    assert (blocks.num_used_gpu_blocks, blocks.num_shared_blocks) == (0, 0)
    assert blocks.num_free_cpu_blocks == 2


def test_the_cache_is_reset_only_when_nothing_is_in_use() -> None:
    blocks = BlockManager(2, 4, enable_prefix_caching=True)
    blocks.allocate_slots(0, PROMPT, 0, 4)
    assert not blocks.reset_prefix_cache() and blocks.num_cached_blocks == 2
    blocks.free(0)
    assert blocks.reset_prefix_cache() and blocks.num_cached_blocks == 0
    assert blocks.cached_blocks(PROMPT) == []


def test_i29_what_was_swapped_in_registers_nothing_more_nor_do_its_forks() -> None:
    blocks = BlockManager(2, 12, 12, enable_prefix_caching=True)
    blocks.allocate_slots(0, PROMPT, 0, 4)
    assert blocks.num_cached_blocks == 2
    blocks.swap_out([0])
    blocks.swap_in([0])
    blocks.fork(0, 1)
    for seq_id in (0, 1):
        blocks.allocate_slots(seq_id, PROMPT, 4, 8)
    assert blocks.num_cached_blocks == 2
    blocks.free(1)  # the mark is the table's: a new one registers again
    blocks.allocate_slots(1, [9, 9], 0, 2)
    assert blocks.num_cached_blocks == 3


def test_a_table_that_was_swapped_in_is_in_nobody_s_cache_and_may_be_trimmed() -> None:
    blocks = BlockManager(2, 12, 12, enable_prefix_caching=True)
    blocks.allocate_slots(0, PROMPT, 0, 4)
    blocks.register(0, PROMPT, 2, None)  # as when a planned step is aborted
    with pytest.raises(BlockError, match="seq_id 0 has 2 blocks of 2 tokens"):
        blocks.trim(0, 2)
    blocks.swap_out([0])
    blocks.swap_in([0])
    blocks.trim(0, 0)
    assert not blocks.tables and blocks.num_used_gpu_blocks == 0, "an empty table is none"


def test_blocks_behind_what_is_kept_are_free_again_and_the_next_to_be_taken() -> None:
    blocks = BlockManager(2, 8)
    blocks.allocate_slots(0, PROMPT, 0, 9)
    table = blocks.block_table(0)
    assert len(table) == 5
    for num_tokens, kept in ((8, 4), (5, 3), (4, 2), (1, 1)):
        blocks.trim(0, num_tokens)
        assert blocks.block_table(0) == table[:kept] and blocks.num_used_gpu_blocks == kept
        check_integrity(blocks)
    blocks.allocate_slots(0, PROMPT, 1, 4)
    assert blocks.block_table(0) == table[:2], "the last that was given back comes first"


def test_i52_what_is_computed_again_is_found_only_as_it_was() -> None:
    """Sequence 0 generated behind 4 tokens what is all prompt to 1; 2's prompt ends between."""
    blocks = BlockManager(2, 12, enable_prefix_caching=True)
    tokens = [*PROMPT[:4], 9, 9, 9]
    prompt_len = 4
    blocks.allocate_slots(0, tokens, 0, 7, prompt_len=prompt_len)
    table = blocks.block_table(0)
    own, others = (blocks.cached_blocks(tokens, prompt_len=n) for n in (prompt_len, 7))
    assert own == table[:3] == blocks.cached_blocks(tokens), "as it was, or of whatever kind"
    assert others == table[:2] and blocks.cached_blocks(tokens, prompt_len=3) == table[:1]
    blocks.allocate_slots(1, [*tokens, 8, 8], 6, 9, cached=own, prompt_len=9)
    for length in (4, 6, 9):  # on top of what 0 generated it has bits of neither kind
        assert len(blocks.cached_blocks([*tokens, 8, 8], prompt_len=length)) <= 3
    assert len(blocks.cached_blocks([*tokens, 8, 8])) == 4
    blocks.fork(1, 2)
    blocks.free(1)
    blocks.allocate_slots(2, [*tokens, 8, 8, 8, 8], 9, 11)
    assert len(blocks.cached_blocks([*tokens, 8, 8, 8, 8])) == 5
    blocks.free(0)
    blocks.free(2)
    assert blocks.reset_prefix_cache()
    blocks.allocate_slots(3, tokens, 0, 7)  # whose prompt is all that is known of it
    assert len(blocks.cached_blocks(tokens, prompt_len=7)) == 3
    assert len(blocks.cached_blocks(tokens, prompt_len=5)) == 2


def test_i52_blocks_behind_two_prompts_differ_by_where_these_ended() -> None:
    """Behind the same tokens both were generated, one on top of a prompt's block."""
    blocks = BlockManager(2, 12, enable_prefix_caching=True)
    blocks.allocate_slots(0, PROMPT, 0, 4, prompt_len=2)
    blocks.allocate_slots(1, PROMPT, 0, 6, prompt_len=4)  # enters its third block alone
    first, second = blocks.block_table(0), blocks.block_table(1)
    assert blocks.cached_blocks(PROMPT) == [*first, second[2]]
    assert blocks.cached_blocks(PROMPT, prompt_len=2) == first
    assert blocks.cached_blocks(PROMPT, prompt_len=4) == first[:1]
    # A block that is all prompt is like that of any longer prompt, and so are those behind it
    blocks.allocate_slots(2, [7] * 4, 0, 4)
    hits = blocks.cached_blocks([7] * 9, prompt_len=8)
    blocks.allocate_slots(3, [7] * 9, 4, 9, cached=hits, prompt_len=8)
    assert blocks.cached_blocks([7] * 9, prompt_len=8) == blocks.block_table(3)[:4]
    check_integrity(blocks)


def test_no_block_of_a_sequence_is_hashed_twice() -> None:
    hashed: list[object] = []

    def count(key: tuple[object, ...]) -> int:
        hashed.append(key)
        return hash(key)

    blocks, chain = BlockManager(2, 8, enable_prefix_caching=True, hash_fn=count), []
    for _ in range(2):
        assert blocks.cached_blocks(PROMPT, chain=chain) == []
    blocks.allocate_slots(0, PROMPT, 0, 8, chain=chain)
    assert len(hashed) == 4 and blocks.num_cached_blocks == 4


def test_what_a_table_has_already_needs_no_block_but_a_copy() -> None:
    blocks = BlockManager(2, 8)
    blocks.allocate_slots(0, PROMPT, 0, 7)
    assert blocks.blocks_needed(0, 7, 8) == 0
    blocks.fork(0, 1)
    assert blocks.blocks_needed(0, 2, 4) == 1
    assert len(blocks.allocate_slots(0, PROMPT, 2, 4) or []) == 1


def test_only_tables_on_the_device_are_trimmed() -> None:
    blocks = BlockManager(2, 4, 4)
    blocks.trim(0, 2)  # it has none
    assert not blocks.tables
    blocks.allocate_slots(0, PROMPT, 0, 4)
    blocks.swap_out([0])
    before = snapshot(blocks)
    with pytest.raises(BlockError, match="seq_id 0 is on the cpu: swap it in"):
        blocks.trim(0, 2)
    assert snapshot(blocks) == before


def test_i27_what_swap_in_overwrites_is_no_longer_found() -> None:
    blocks = BlockManager(2, 4, 4, enable_prefix_caching=True)
    blocks.allocate_slots(0, PROMPT, 0, 4)
    blocks.allocate_slots(1, [9, 9, 9, 9], 0, 4)
    blocks.free(0)
    blocks.swap_out([1])
    assert blocks.cached_blocks(PROMPT) == [0, 1]
    blocks.swap_in([1])  # into the blocks that have been free for longest
    assert sorted(blocks.block_table(1)) == [0, 1]
    assert blocks.cached_blocks(PROMPT) == []


def test_i26_a_fork_of_a_prefix_registers_the_blocks_it_fills_itself() -> None:
    blocks = BlockManager(2, 8, enable_prefix_caching=True)
    blocks.allocate_slots(0, PROMPT, 0, 8)
    blocks.fork(0, 1, 2)
    other = [*PROMPT[:4], 9, 9, 9, 9]
    blocks.allocate_slots(1, other, 4, 8)
    assert blocks.cached_blocks([*other, 5]) == blocks.block_table(1)


def test_i25_a_fork_that_leaves_the_prompt_is_cached_by_its_own_tokens() -> None:
    """The parent has looked up its whole prompt, but computed only the first token."""
    blocks, chain = BlockManager(2, 4, enable_prefix_caching=True), []
    blocks.cached_blocks([0, 0, 0], None, chain)
    blocks.allocate_slots(0, [0, 0, 0], 0, 1, chain=chain)
    blocks.fork(0, 1)
    blocks.allocate_slots(1, [0, 1], 1, 2)
    assert blocks.cached_blocks([0, 0, 0]) == []
    assert blocks.cached_blocks([0, 1, 0]) == blocks.block_table(1)


def test_i12_a_fork_of_a_swapped_out_sequence_is_where_its_blocks_are() -> None:
    blocks = BlockManager(2, 8, 8)
    blocks.allocate_slots(0, PROMPT, 0, 4)
    blocks.swap_out([0])
    blocks.fork(0, 1)
    assert blocks.device(1) == "cpu" and blocks.num_free_cpu_blocks == 6
    check_integrity(blocks)
    assert len(blocks.swap_in([0, 1])) == 2, "I14: still shared"
    assert blocks.block_table(1) == blocks.block_table(0)


def test_a_table_may_be_full_and_no_wider() -> None:
    blocks = BlockManager(2, 8, table_width=3)
    assert blocks.allocate_slots(0, PROMPT, 0, 6) == []
    assert blocks.block_table(0) == blocks.block_table_rows([0])[0].tolist()
    with pytest.raises(BlockError, match="needs 4 blocks for 7 tokens, table_width is 3"):
        blocks.allocate_slots(0, PROMPT, 6, 7)
