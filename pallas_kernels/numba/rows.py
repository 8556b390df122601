"""Query vectors in, results out: one row for each query token and head of a KV head's group.

Rows are padded to a multiple of 4 and to whole vectors, as the products want them; a padding row
holds zeros, and nothing is read from it.
"""

from typing import Any

import numpy as np
from numba import njit

from pallas_kernels.numba.functions import constant
from pallas_kernels.numba.products import ROWS
from pallas_kernels.numba.vectors import BYTES, store
from pallas_kernels.numba.work import Work, floats


@njit(cache=True)
def padded(rows: int) -> int:
    """Rows, rounded up to what a product takes."""
    return -(-rows // ROWS) * ROWS


@njit(cache=True)
def zero(start: int, count: int) -> None:
    """Zeros in `count` float32, a multiple of 16, from an address on."""
    nothing = constant(0.0)
    for place in range(start, start + 4 * count, BYTES):
        store(place, nothing)


@njit(cache=True)
def read_queries(work: Work, token: int, count: int, head: int, rows: int) -> None:
    """Scaled queries of `count` tokens to `rows`; row i * G + g is token i and head g."""
    dim, group = work.dim, work.group
    zero(rows, padded(count * group) * work.width)
    queries = floats(work.q, work.tokens * work.heads * dim)
    for i in range(count):
        for g in range(group):
            old = ((token + i) * work.heads + head * group + g) * dim
            row = floats(rows + 4 * (i * group + g) * work.width, dim)
            for d in range(dim):
                row[d] = queries[old + d] * work.scale


@njit(cache=True)
def write_row(work: Work, token: int, head: int, row: int, top: Any, denominator: Any) -> None:
    """A query head's result: the sums of a row over their denominator."""
    number = token * work.heads + head
    sums = floats(row, work.dim)
    out = floats(work.out + 4 * number * work.dim, work.dim)
    factor = np.float32(1) / denominator
    for d in range(work.dim):
        out[d] = sums[d] * factor
    floats(work.top, work.tokens * work.heads)[number] = top
    floats(work.denominator, work.tokens * work.heads)[number] = denominator
