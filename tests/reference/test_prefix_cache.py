"""Prefix caching: the published traces, and hash functions that do their worst (I25 to I29)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.blocks import BlockManager
from reference.prefix_cache import PrefixCache, hash_block
from tests.support.strategies import token_ids


def new_manager(block_size: int, num_blocks: int) -> BlockManager:
    return BlockManager(block_size, num_blocks, enable_prefix_caching=True)


def admit(manager: BlockManager, seq_id: int, tokens: list[int], salt: str | None = None) -> int:
    """Give a whole prompt its blocks; the number of tokens that were hits."""
    hits = manager.cached_blocks(tokens, salt)
    start = len(hits) * manager.block_size
    copies = manager.allocate_slots(
        seq_id, tokens, start, len(tokens), cached=hits, cache_salt=salt
    )
    assert copies == []
    return start


def test_published_trace_time_1_to_7() -> None:
    """vLLM's design document on prefix caching, its example: block size 4, 10 blocks."""
    manager = new_manager(4, 10)
    tokens = list(range(100, 116))
    # Time 1: the cache is empty; 15 tokens take 4 blocks, 3 of them full and cached.
    assert admit(manager, 0, tokens[:15]) == 0
    assert manager.block_table(0) == [0, 1, 2, 3] and manager.num_cached_blocks == 3
    # Time 2 and 3: the 16th token fills block 3; the 17th asks for block 4.
    manager.allocate_slots(0, tokens, 15, 16)
    assert manager.block_table(0) == [0, 1, 2, 3] and manager.num_cached_blocks == 4
    manager.allocate_slots(0, [*tokens, 7], 16, 17)
    assert manager.block_table(0) == [0, 1, 2, 3, 4]
    # Time 4: request 1 has 14 tokens, 10 of them in common: 2 whole blocks are hits.
    assert admit(manager, 1, [*tokens[:10], 8, 8, 8, 8]) == 8
    assert manager.block_table(1) == [0, 1, 5, 6]
    # Time 5: request 0 is freed, its last block first; 0 and 1 are still in use.
    manager.free(0)
    assert manager.gpu.free_blocks == [7, 8, 9, 4, 3, 2]
    # Time 6: so is request 1.
    manager.free(1)
    assert manager.gpu.free_blocks == [7, 8, 9, 4, 3, 2, 6, 5, 1, 0]
    # Time 7: 29 tokens, the first 12 as request 0's. Hits leave the queue before it is popped.
    assert admit(manager, 2, [*tokens[:12], *[9] * 17]) == 12
    assert manager.block_table(2) == [0, 1, 2, 7, 8, 9, 4, 3]
    assert manager.gpu.free_blocks == [6, 5]


def test_published_trace_test_prefill() -> None:
    """vLLM's own test of its manager, block size 16. It has 11 blocks, of which block 0 is unused
    by design; we have the other 10, so our numbers are one less."""
    manager = new_manager(16, 10)
    common = [i for i in range(3) for _ in range(16)]
    assert admit(manager, 0, common + [3] * 7) == 0
    assert manager.block_table(0) == [0, 1, 2, 3]
    assert [manager.ref_count(block) for block in range(4)] == [1, 1, 1, 1]
    # A hit while the blocks are in use: they are shared.
    assert admit(manager, 1, common + [3] * 5) == 48
    assert manager.block_table(1) == [0, 1, 2, 4]
    assert [manager.ref_count(block) for block in range(3)] == [2, 2, 2]
    assert manager.num_free_gpu_blocks == 5
    manager.free(0)
    manager.free(1)
    assert [block + 1 for block in manager.gpu.free_blocks] == [6, 7, 8, 9, 10, 4, 5, 3, 2, 1]
    # A hit when they are free already: they leave the queue.
    assert admit(manager, 2, common + [3] * 6) == 48
    assert manager.block_table(2) == [0, 1, 2, 5]
    assert manager.num_free_gpu_blocks == 6
    manager.free(2)
    # A miss that takes everything, in the order of eviction.
    assert admit(manager, 3, [99] * 160) == 0
    assert [block + 1 for block in manager.block_table(3)] == [7, 8, 9, 10, 4, 5, 6, 3, 2, 1]
    assert manager.num_free_gpu_blocks == 0


def test_a_duplicate_stays_with_its_sequence_and_unknown() -> None:
    """Two sequences fill a block with the same tokens: tables are append-only, so both keep theirs,
    and the first one is the cached one; it stays so even when it is evicted."""
    manager = new_manager(4, 4)
    prompt, whole = list(b"ABCDEF"), list(b"ABCDEFGH")
    assert admit(manager, 0, prompt) == 0
    assert admit(manager, 1, prompt) == 4
    for seq_id in (0, 1):
        manager.allocate_slots(seq_id, whole, 6, 8)
    assert [manager.block_table(seq_id) for seq_id in (0, 1)] == [[0, 1], [0, 2]]
    assert manager.cached_blocks([*whole, 0]) == [0, 1]
    manager.free(0)
    assert admit(manager, 2, [5] * 8) == 0  # takes blocks 3 and 1, so block 1 is evicted
    assert manager.cached_blocks([*whole, 0]) == [0]


def test_a_sequence_that_was_swapped_in_offers_nothing_more() -> None:
    manager = BlockManager(2, 8, 8, enable_prefix_caching=True)
    admit(manager, 0, [1, 2, 3])
    manager.swap_out([0])
    manager.swap_in([0])
    manager.allocate_slots(0, [1, 2, 3, 4], 3, 4)
    assert manager.cached_blocks([1, 2, 3, 4, 5]) == [0]  # what it left behind on the GPU
    manager.fork(0, 1)
    manager.allocate_slots(1, [1, 2, 3, 4, 5, 6], 4, 6)
    assert manager.num_cached_blocks == 1


def test_a_preempted_sequence_takes_only_blocks_of_its_own_kind() -> None:
    """Sequence 0 generates its second block, which a prompt of 5 tokens finds; 1 is that prompt.

    Block 2 is filled by sequence 1, which began with a block that is not its own. None of the two
    is what a prompt of 5 tokens computes, and only the first is what a prompt of 2 tokens does.
    """
    manager, tokens = new_manager(2, 8), [1, 2, 3, 4, 5, 6, 7]
    admit(manager, 0, tokens[:2])
    manager.allocate_slots(0, tokens[:4], 2, 4)
    assert admit(manager, 1, tokens[:5]) == 4
    manager.allocate_slots(1, tokens[:6], 5, 6)
    assert [manager.block_table(i) for i in (0, 1)] == [[0, 1], [0, 1, 2]]
    assert manager.cached_blocks(tokens) == [0, 1, 2]
    found = {length: manager.cached_blocks(tokens, prompt_len=length) for length in range(1, 7)}
    assert found == {1: [], 2: [0, 1], 3: [0], 4: [0], 5: [0], 6: [0]}


def test_reset_needs_an_idle_pool_and_keeps_its_order() -> None:
    manager = new_manager(2, 4)
    admit(manager, 0, [1, 2, 3])
    assert not manager.reset_prefix_cache() and manager.num_cached_blocks == 1
    manager.free(0)
    assert manager.reset_prefix_cache() and manager.num_cached_blocks == 0
    assert manager.gpu.free_blocks == [2, 3, 1, 0]


def test_without_caching_nothing_is_found() -> None:
    manager = BlockManager(1, 4)
    admit(manager, 0, [1, 2])
    assert manager.cached_blocks([1, 2, 3]) == [] and manager.num_cached_blocks == 0


def constant(*_: Any) -> int:
    return 7


def length_only(parent: int | None, tokens: tuple[int, ...], salt: str | None) -> int:
    return len(tokens) + (parent or 0)


def test_colliding_hashes_are_told_apart_by_their_tokens() -> None:
    """I25."""
    cache = PrefixCache(2, constant)
    assert cache.offer(0, [1, 2]) and cache.offer(1, [3, 4]) and cache.offer(2, [3, 4], "salt")
    assert cache.lookup([3, 4, 5]) == [1] and cache.lookup([5, 6, 7]) == []


@pytest.mark.parametrize("hash_fn", [hash_block, constant, length_only])
@given(
    offers=st.lists(st.tuples(token_ids(0, 12), st.sampled_from([None, "a", "b"])), max_size=12),
    block_size=st.integers(1, 4),
    wanted=token_ids(0, 12),
    salt=st.sampled_from([None, "a"]),
)
def test_hits_are_those_of_brute_force(
    hash_fn: Any,
    offers: list[tuple[tuple[int, ...], str | None]],
    block_size: int,
    wanted: tuple[int, ...],
    salt: str | None,
) -> None:
    """I25, I26 and I29: equal content and only that, whatever the hash; at most len - 1 tokens."""
    cache = PrefixCache(block_size, hash_fn)
    content: dict[tuple[tuple[int, ...], str | None], int] = {}
    for block, (tokens, its_salt) in enumerate(offers):
        prefix = tokens[: len(tokens) // block_size * block_size]
        if prefix:
            assert cache.offer(block, prefix, its_salt) == ((prefix, its_salt) not in content)
            content.setdefault((prefix, its_salt), block)
    assert len(cache) == len(content)
    expected = []
    for end in range(block_size, len(wanted), block_size):
        if (wanted[:end], salt) not in content:
            break
        expected.append(content[wanted[:end], salt])
    assert cache.lookup(wanted, salt) == expected
    for block in content.values():
        cache.evict(block)
    assert len(cache) == 0 and cache.lookup(wanted, salt) == []
