"""I2, I3, I7 on a single pool: what is refused, and that it changes nothing."""

import pytest

from jax_engine.core import BlockError, BlockPool, OutOfBlocksError
from jax_engine.errors import JaxEngineError


def state(pool: BlockPool) -> tuple[list[int], list[int], int]:
    return list(pool.refs), pool.next_blocks(pool.num_free), pool.num_shared


def test_i7_double_free_is_refused() -> None:
    pool = BlockPool("gpu", 3)
    block = pool.allocate()
    pool.free(block)
    before = state(pool)
    with pytest.raises(BlockError, match=f"gpu block {block} has 0 references.*double free"):
        pool.free(block)
    assert state(pool) == before


@pytest.mark.parametrize("block", [-1, 3])
def test_i7_an_unknown_block_is_refused(block: int) -> None:
    pool = BlockPool("cpu", 3)
    before = state(pool)
    for operation in (pool.free, pool.share):
        with pytest.raises(BlockError, match=rf"cpu block {block} is not in \[0, 3\)"):
            operation(block)
    assert state(pool) == before


def test_i7_an_empty_pool_says_so() -> None:
    pool = BlockPool("gpu", 1)
    pool.allocate()
    before = state(pool)
    with pytest.raises(OutOfBlocksError, match="num_free_gpu_blocks is 0 of 1") as raised:
        pool.allocate()
    assert isinstance(raised.value, JaxEngineError)
    assert state(pool) == before


def test_newest_first_or_longest_free_first() -> None:
    newest, longest = BlockPool("gpu", 3), BlockPool("gpu", 3, lru=True)
    assert [newest.allocate() for _ in range(3)] == [2, 1, 0]
    assert [longest.allocate() for _ in range(3)] == [0, 1, 2]
    for pool in (newest, longest):
        pool.free_all([0, 2])  # block 2 first
    assert [newest.allocate(), newest.allocate()] == [0, 2]
    assert [longest.allocate(), longest.allocate()] == [2, 0]


@pytest.mark.parametrize("lru", [False, True])
def test_what_is_returned_is_taken_next_and_in_its_order(lru: bool) -> None:
    pool = BlockPool("gpu", 4, lru=lru)
    first, shared, last = (pool.allocate() for _ in range(3))
    pool.share(shared)
    pool.return_all([first, shared, last])
    assert pool.next_blocks(4)[:2] == [first, last] and pool.num_free == 3


def test_sharing_counts_and_revives() -> None:
    pool = BlockPool("gpu", 2, lru=True)
    pool.share(1)  # free, but its content is cached
    assert state(pool) == ([0, 1], [0], 0)
    pool.share(1)
    assert (pool.refs, pool.num_shared) == ([0, 2], 1)
    pool.free(1)
    assert (pool.refs, pool.num_shared, pool.num_free) == ([0, 1], 0, 1)


@pytest.mark.parametrize("lru", [False, True])
def test_the_next_blocks_are_those_that_allocate_gives(lru: bool) -> None:
    pool = BlockPool("cpu", 6, lru=lru)
    taken = [pool.allocate() for _ in range(6)]
    for block in (taken[i] for i in (2, 5, 0, 3)):
        pool.free(block)
    before = state(pool)
    following = pool.next_blocks(3)
    assert state(pool) == before
    assert following == [pool.allocate() for _ in range(3)]
