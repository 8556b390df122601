"""Reads keys and values run by run: consecutive slots of one block."""

from typing import Any

import numpy as np

from cpu_kernels.attention.work import Work
from cpu_kernels.compiling.jit import inlined, inner
from cpu_kernels.simd.structs import FLOAT32
from cpu_kernels.simd.vectors import LANES, prefetch, store
from cpu_kernels.simd.widen import item_bytes, widen, widen_run, widen_some

# Keys or values. NumPy integers, because Numba would compile a function for each Python constant.
KEYS, VALUES = np.int64(0), np.int64(1)


@inlined
def find_run(
    work: Work, which: int, seq: int, head: int, position: int, reach: tuple[int, int]
) -> tuple[int, int, Any]:
    """Finds keys or values of one KV head, from a position to the end of its block or of `reach`.

    Args:
        reach: first position to read, and last plus 1. The caller reads the keys of these
            positions, then their values, then the keys after them.

    Returns:
        The address of rows of D in the cache, their number, and the distance in bytes to the rows
        that are read next. Prefetching these line by line hides the latency of the jump, since
        processors do not prefetch across pages of memory by themselves.
    """
    size, (start, stop) = work.block_size, reach
    count = min(size - position % size, stop - position)
    source = _find(work, which, seq, head, position)
    ahead, following = np.int64(0), position - position % size + size
    if following < stop:
        ahead = _find(work, which, seq, head, following) - source
    elif which == KEYS:
        ahead = _find(work, VALUES, seq, head, start) - source
    elif stop < work.context_lens[seq]:
        ahead = _find(work, KEYS, seq, head, stop) - source
    return source, count, ahead


@inner
def read_run(
    work: Work, which: int, seq: int, head: int, position: int, reach: tuple[int, int], scratch: int
) -> tuple[int, int, Any]:
    """What `find_run` finds, in float32.

    Returns:
        The address of float32 rows of `work.width`, in the cache itself or in `scratch` (with
        zeros beyond D), their number, and the distance to the rows to prefetch; 0 if they were
        prefetched already.
    """
    source, count, ahead = find_run(work, which, seq, head, position, reach)
    if work.kind != FLOAT32 and work.dim == work.width:
        widen_run(work.kind, source, count * work.dim, scratch, ahead)
        return scratch, count, np.int64(0)
    if work.dim != work.width:
        _widen_rows(work.kind, source, work.dim, count, scratch, ahead)
        return scratch, count, np.int64(0)
    return source, count, ahead


@inlined
def _find(work: Work, which: int, seq: int, head: int, position: int) -> int:
    """Address of a position's key or value in the cache."""
    size = work.block_size
    block = work.block_tables[seq * work.table_width + position // size]
    place = work.layer * work.kv + min(which, work.kv - 1)
    row = (place * work.num_blocks + block) * work.kv_heads + head
    return work.kv_cache + (row * size + position % size) * work.dim * item_bytes(work.kind)


@inner
def _widen_rows(kind: int, source: int, dim: int, count: int, place: int, ahead: int) -> None:
    size = item_bytes(kind)
    for _ in range(count):
        for d in range(0, dim, LANES):
            start = source + d * size
            prefetch(start + ahead)
            # Memory beyond a row may not be readable.
            value = widen(kind, start) if d + LANES <= dim else widen_some(kind, start, dim - d)
            store(place, value)
            place += 4 * LANES
        source += dim * size
