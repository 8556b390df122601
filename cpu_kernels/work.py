"""A call of paged attention as its tasks see it: addresses, sizes, and rules, out of the frame."""

from typing import Any

import numpy as np
from numba import carray

from cpu_kernels.ffi import address, dtype, operand, result, size
from cpu_kernels.jit import inner
from cpu_kernels.native import pointer_at
from cpu_kernels.vectors import LANES, get, get_int

# Operands and results, in their order; RECORD holds the `Work`.
Q, CACHE, TABLES, LENS, STARTS, LAYER, NUMBERS, WINDOW, SLOPES = range(9)
OUT, TOP, DENOMINATOR, RECORD = range(4)


# Addresses of the arrays, in C order: float32 q and out [T, H, D], slopes [H] (0 for none), top and
# denominator [T, H], each softmax's largest score and sum of weights. XLA's number of the cache's
# element type. Sizes; width is D rounded up to whole vectors. A window or cap of 0 is none.
_ADDRESSES = ("q", "cache", "tables", "lens", "starts", "slopes", "out", "top", "denominator")
_SIZES = ("tokens", "seqs", "heads", "kv_heads", "group", "dim", "width", "blocks", "block_size")
_REST = ("table_width", "window", "layer", "kind", "plan")
_FIELDS = [(name, np.int64) for name in (*_ADDRESSES, *_SIZES, *_REST)]
WORK = np.dtype([*_FIELDS, ("scale", np.float32), ("cap", np.float32)])
WORK_BYTES = WORK.itemsize

# A record of that type. Numba knows it by reference, which compiles faster than a tuple of 25.
Work = Any


@inner
def find_work(frame: int) -> Work:
    """The record of a frame's call."""
    return carray(pointer_at(address(result(frame, RECORD))), (1,), WORK)[0]


@inner
def read_work(frame: int) -> Work:
    """The record of a frame's call, filled in."""
    work = find_work(frame)
    q, cache, tables = operand(frame, Q), operand(frame, CACHE), operand(frame, TABLES)
    slopes = operand(frame, SLOPES)
    numbers = address(operand(frame, NUMBERS))
    work.q, work.cache, work.tables = address(q), address(cache), address(tables)
    work.lens, work.starts = address(operand(frame, LENS)), address(operand(frame, STARTS))
    work.slopes = address(slopes) if size(slopes, 0) > 0 else 0
    work.out, work.top = address(result(frame, OUT)), address(result(frame, TOP))
    work.denominator = address(result(frame, DENOMINATOR))
    work.kind = dtype(cache)
    work.layer = get_int(address(operand(frame, LAYER)))
    work.window = get_int(address(operand(frame, WINDOW)))
    work.scale, work.cap = get(numbers), get(numbers + 4)
    work.tokens, work.heads, work.dim = size(q, 0), size(q, 1), size(q, 2)
    work.seqs, work.table_width = size(tables, 0), size(tables, 1)
    work.blocks, work.kv_heads, work.block_size = size(cache, 2), size(cache, 3), size(cache, 4)
    work.group = work.heads // work.kv_heads
    work.width = -(-work.dim // LANES) * LANES
    return work


@inner
def slope_of(work: Work, head: int) -> Any:
    """A query head's slope, 0 for none."""
    if work.slopes == 0:
        return np.float32(0)
    return get(work.slopes + 4 * head)
