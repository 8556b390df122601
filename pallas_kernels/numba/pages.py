"""Keys and values in float32, run by run: the slots of one block that follow one another."""

import numpy as np

from pallas_kernels.numba.jit import inner
from pallas_kernels.numba.vectors import LANES, get_int, store
from pallas_kernels.numba.widen import FLOAT32, item_bytes, widen
from pallas_kernels.numba.work import Work

# Which of the two a run is of; numbers that Numba takes for variables, or it compiles each apart.
KEYS, VALUES = np.int64(0), np.int64(1)


@inner
def read_run(
    work: Work, which: int, seq: int, head: int, position: int, stop: int, scratch: int
) -> tuple[int, int]:
    """Keys or values of one KV head from a position on, to its block's end or before `stop`.

    Returns:
        The address of float32 rows of `work.width`, in the cache itself or in `scratch` (with
        zeros beyond D), and their number.
    """
    size, offset = work.block_size, position % work.block_size
    count = min(size - offset, stop - position)
    block = get_int(work.tables + 4 * (seq * work.table_width + position // size))
    row = ((work.layer * 2 + which) * work.blocks + block) * work.kv_heads + head
    source = work.cache + (row * size + offset) * work.dim * item_bytes(work.kind)
    if work.kind != FLOAT32 or work.dim != work.width:
        _widen_rows(work.kind, source, work.dim, count, scratch)
        source = scratch
    return source, count


@inner
def _widen_rows(kind: int, source: int, dim: int, count: int, place: int) -> None:
    size = item_bytes(kind)
    for _ in range(count):
        for d in range(0, dim, LANES):
            # Beyond a row there may be nothing to read.
            store(place, widen(kind, source + d * size, dim - d))
            place += 4 * LANES
        source += dim * size
