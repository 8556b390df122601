"""Keys and values in float32, run by run: the slots of one block that follow one another."""

import numpy as np
from numba import carray, njit

from pallas_kernels.numba.native import pointer_at
from pallas_kernels.numba.vectors import LANES
from pallas_kernels.numba.work import Work, integers

# XLA's numbers of element types, and their names.
INT8, FLOAT16, FLOAT32, BFLOAT16, FLOAT8 = 2, 10, 11, 16, 20
DTYPES = ("float32", "bfloat16", "float16", "int8", "float8_e4m3fn")
KEYS, VALUES = 0, 1


@njit(cache=True)
def read_run(
    work: Work, which: int, seq: int, head: int, position: int, stop: int, scratch: int
) -> tuple[int, int]:
    """Keys or values of one KV head from a position on, to its block's end or before `stop`.

    Returns:
        The address of float32 rows of `work.width`, in the cache itself or in `scratch` (with
        zeros beyond D), and their number.
    """
    index, offset = position // work.block_size, position % work.block_size
    count = min(work.block_size - offset, stop - position)
    tables = integers(work.tables, work.seqs * work.table_width)
    block = int(tables[seq * work.table_width + index])
    row = ((work.layer * 2 + which) * work.blocks + block) * work.kv_heads + head
    element = (row * work.block_size + offset) * work.dim
    if work.kind == FLOAT32:
        if work.dim % LANES == 0:
            return work.cache + 4 * element, count
        _copy_float32(work.cache + 4 * element, work.dim, work.width, count, scratch)
    elif work.kind == BFLOAT16:
        _widen_bfloat16(work.cache + 2 * element, work.dim, work.width, count, scratch)
    elif work.kind == FLOAT16:
        _widen_float16(work.cache + 2 * element, work.dim, work.width, count, scratch)
    elif work.kind == INT8:
        _widen_int8(work.cache + element, work.dim, work.width, count, scratch)
    else:
        _widen_float8(work.cache + element, work.dim, work.width, count, scratch)
    return scratch, count


@njit(cache=True)
def _copy_float32(source: int, dim: int, width: int, count: int, scratch: int) -> None:
    old = carray(pointer_at(source), (count, dim), np.float32)
    new = carray(pointer_at(scratch), (count, width), np.float32)
    new[:, dim:] = 0
    for i in range(count):
        for d in range(dim):
            new[i, d] = old[i, d]


@njit(cache=True)
def _widen_bfloat16(source: int, dim: int, width: int, count: int, scratch: int) -> None:
    old = carray(pointer_at(source), (count, dim), np.uint16)
    new = carray(pointer_at(scratch), (count, width), np.uint32)
    new[:, dim:] = 0
    for i in range(count):
        for d in range(dim):
            new[i, d] = np.uint32(old[i, d]) << np.uint32(16)


@njit(cache=True)
def _widen_float16(source: int, dim: int, width: int, count: int, scratch: int) -> None:
    old = carray(pointer_at(source), (count, dim), np.uint16)
    new = carray(pointer_at(scratch), (count, width), np.float32)
    bits = carray(pointer_at(scratch), (count, width), np.uint32)
    new[:, dim:] = 0
    for i in range(count):
        for d in range(dim):
            number = np.uint32(old[i, d])
            rest = number & np.uint32(0x7FFF)
            sign = (number & np.uint32(0x8000)) << np.uint32(16)
            # Exponents count from 15 instead of 127; the largest stands for infinity and NaN.
            bias = np.uint32(224 << 23) if rest >= np.uint32(0x7C00) else np.uint32(112 << 23)
            if rest < np.uint32(0x400):
                new[i, d] = np.float32(np.int32(rest)) * np.float32(2.0**-24)
                bits[i, d] |= sign
            else:
                bits[i, d] = ((rest << np.uint32(13)) + bias) | sign


@njit(cache=True)
def _widen_int8(source: int, dim: int, width: int, count: int, scratch: int) -> None:
    old = carray(pointer_at(source), (count, dim), np.int8)
    new = carray(pointer_at(scratch), (count, width), np.float32)
    new[:, dim:] = 0
    for i in range(count):
        for d in range(dim):
            new[i, d] = np.float32(old[i, d])


@njit(cache=True)
def _widen_float8(source: int, dim: int, width: int, count: int, scratch: int) -> None:
    old = carray(pointer_at(source), (count, dim), np.uint8)
    new = carray(pointer_at(scratch), (count, width), np.float32)
    bits = carray(pointer_at(scratch), (count, width), np.uint32)
    new[:, dim:] = 0
    for i in range(count):
        for d in range(dim):
            number = np.uint32(old[i, d])
            rest = number & np.uint32(0x7F)
            sign = (number & np.uint32(0x80)) << np.uint32(24)
            # Exponents count from 7 instead of 127; there is one NaN and no infinity.
            if rest < np.uint32(8):
                new[i, d] = np.float32(np.int32(rest)) * np.float32(2.0**-9)
                bits[i, d] |= sign
            elif rest == np.uint32(0x7F):
                bits[i, d] = np.uint32(0x7FC00000)
            else:
                bits[i, d] = ((rest << np.uint32(20)) + np.uint32(120 << 23)) | sign
