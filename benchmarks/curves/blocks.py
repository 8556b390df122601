"""Block manager operations against the size of the pool, which they must not depend on."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from benchmarks.curves.curve import Curve, Series
from jax_engine.core import BlockManager

POOLS = tuple(10**i for i in range(2, 7))
SMOKE = (100, 1000)
BLOCK_SIZE = 16
PROMPT_BLOCKS = 8
ROUNDS = 200
FILLER_BLOCKS = 50  # blocks of each sequence that fills the pool with cached content


def operations(smoke: bool) -> Curve:
    """Each operation on a sequence of 8 blocks, in a pool full of others' cached content."""
    pools = {size: _full_pool(size) for size in (SMOKE if smoke else POOLS)}
    seconds: dict[str, dict[int, list[float]]] = {}
    with _without_collector():
        for i in range(20 if smoke else ROUNDS):  # taking turns: the machine's mood is the same
            for size, blocks in pools.items():
                for name, operation in _life(blocks, -1 - i):
                    started = time.perf_counter()
                    operation()
                    taken = time.perf_counter() - started
                    seconds.setdefault(name, {}).setdefault(size, []).append(taken)
    lines = {
        name: Series("O(1)", {size: 1e6 * median(found) for size, found in by_size.items()})
        for name, by_size in seconds.items()
    }
    return Curve(
        "Block manager operations",
        "blocks of the pool",
        "microseconds",
        f"A sequence of {PROMPT_BLOCKS} blocks of {BLOCK_SIZE} tokens, prefix caching on; every "
        "free block of the pool holds cached content, which an allocation evicts. Medians "
        f"of {ROUNDS}; the pools take turns.",
        lines,
    )


def _full_pool(size: int) -> BlockManager:
    """Different content cached in every block, all of them free."""
    blocks = BlockManager(
        BLOCK_SIZE, size, size, watermark=0.0, enable_prefix_caching=True, table_width=64
    )
    count = FILLER_BLOCKS * BLOCK_SIZE
    for first in range(0, size, FILLER_BLOCKS):
        content = [first, *range(1, count)]
        assert blocks.allocate_slots(0, content, 0, count) == []
        blocks.free(0)
    return blocks


def _life(blocks: BlockManager, token: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Operations of one sequence and its fork, in an order in which each is possible."""
    size = PROMPT_BLOCKS * BLOCK_SIZE
    tokens = [token, *range(1, size + BLOCK_SIZE)]
    chain: list = []
    yield "allocate 8 blocks", lambda: blocks.allocate_slots(0, tokens, 0, size, chain=chain)
    yield "append, new block", lambda: blocks.allocate_slots(0, tokens, size, size + 1)
    yield "append, same block", lambda: blocks.allocate_slots(0, tokens, size + 1, size + 2)
    yield "fork", lambda: blocks.fork(0, 1)
    yield "append, copy on write", lambda: blocks.allocate_slots(1, tokens, size + 2, size + 3)
    yield "swap out", lambda: blocks.swap_out([0, 1])
    yield "swap in", lambda: blocks.swap_in([0, 1])
    yield "free", lambda: blocks.free(1)
    blocks.free(0)
    yield "cached lookup", lambda: blocks.cached_blocks(tokens, None, chain)


@contextmanager
def _without_collector() -> Iterator[None]:
    """As `timeit` does: a collection that happens to fall into a call is not that call's cost."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
