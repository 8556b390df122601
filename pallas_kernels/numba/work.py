"""A call of paged attention as its tasks see it: addresses, sizes, and rules, out of the frame."""

from typing import Any, NamedTuple

import numpy as np
from numba import carray, njit

from pallas_kernels.numba.ffi import address, dtype, operand, result, size
from pallas_kernels.numba.native import pointer_at
from pallas_kernels.numba.vectors import LANES

# Operands and results, in their order.
Q, CACHE, TABLES, LENS, STARTS, LAYER, NUMBERS, WINDOW, SLOPES = range(9)
OUT, TOP, DENOMINATOR, PLAN = range(4)


class Work(NamedTuple):
    """Addresses of arrays in C order, sizes in the project's letters, and what is static.

    Attributes:
        q: float32 [T, H, D]; `out` likewise.
        top: float32 [T, H]: each softmax's largest score; `denominator` likewise, 0 where a token
            saw nothing.
        plan: one word: the address of the plan.
        slopes: float32 [H], or 0 for none.
        kind: XLA's number of the cache's element type.
        width: D, rounded up to whole vectors.
        cap: bound of the scores' magnitude, 0 for none; `window` likewise.
    """

    q: int
    cache: int
    tables: int
    lens: int
    starts: int
    slopes: int
    out: int
    top: int
    denominator: int
    plan: int
    kind: int
    layer: int
    tokens: int
    seqs: int
    heads: int
    kv_heads: int
    group: int
    dim: int
    width: int
    blocks: int
    block_size: int
    table_width: int
    window: int
    scale: float
    cap: float


@njit(cache=True)
def integers(start: int, count: int) -> Any:
    """The `count` int32 at an address."""
    return carray(pointer_at(start), (count,), np.int32)


@njit(cache=True)
def floats(start: int, count: int) -> Any:
    """The `count` float32 at an address."""
    return carray(pointer_at(start), (count,), np.float32)


@njit(cache=True)
def read_work(frame: int) -> Work:
    """The call of a frame."""
    q, cache, tables = operand(frame, Q), operand(frame, CACHE), operand(frame, TABLES)
    slopes = operand(frame, SLOPES)
    numbers = floats(address(operand(frame, NUMBERS)), 2)
    heads, kv_heads, dim = size(q, 1), size(cache, 3), size(q, 2)
    return Work(
        address(q),
        address(cache),
        address(tables),
        address(operand(frame, LENS)),
        address(operand(frame, STARTS)),
        address(slopes) if size(slopes, 0) > 0 else 0,
        address(result(frame, OUT)),
        address(result(frame, TOP)),
        address(result(frame, DENOMINATOR)),
        address(result(frame, PLAN)),
        dtype(cache),
        int(integers(address(operand(frame, LAYER)), 1)[0]),
        size(q, 0),
        size(tables, 0),
        heads,
        kv_heads,
        heads // kv_heads,
        dim,
        -(-dim // LANES) * LANES,
        size(cache, 2),
        size(cache, 4),
        size(tables, 1),
        int(integers(address(operand(frame, WINDOW)), 1)[0]),
        numbers[0],
        numbers[1],
    )


@njit(cache=True)
def slope_of(work: Work, head: int) -> Any:
    """A query head's slope, 0 for none."""
    if work.slopes == 0:
        return np.float32(0)
    return floats(work.slopes, work.heads)[head]
