"""Reads queries and writes results: one row for each query token and head of a KV head's group.

Rows are padded to a multiple of 4 and to whole vectors, as the products need them. Padding rows
hold zeros, and their results are not used.
"""

from typing import Any

from cpu_kernels.attention.softmax import shrink
from cpu_kernels.attention.work import Work
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.products import ROWS
from cpu_kernels.simd.vectors import (
    BYTES,
    LANES,
    first,
    load,
    load_some,
    mul,
    spread,
    store,
    store_some,
)


@inner
def padded(rows: int) -> int:
    """Rows, rounded up to a multiple of a product's rows."""
    return -(-rows // ROWS) * ROWS


@inner
def zero(start: int, count: int) -> None:
    """Writes `count` zeros of float32, a multiple of 16."""
    nothing = spread(0.0)
    for place in range(start, start + 4 * count, BYTES):
        store(place, nothing)


@inner
def read_queries(work: Work, token: int, count: int, head: int, rows: int) -> None:
    """Writes scaled queries of `count` tokens to `rows`; row i * G + g is token i and head g."""
    group, dim, scale = work.group, work.dim, spread(work.scale)
    zero(rows, padded(count * group) * work.width)
    for row in range(count * group):
        query = (token + row // group) * work.heads + head * group + row % group
        for d in range(0, dim, LANES):
            numbers = load_some(work.q + 4 * (query * dim + d), dim - d)
            store(rows + 4 * (row * work.width + d), mul(numbers, scale))


@inner
def write_row(work: Work, token: int, head: int, row: int, top: Any, denominator: Any) -> None:
    """Writes a query head's result: a row of sums over the denominator, which a sink adds to."""
    number, kept = token * work.heads + head, spread(1.0)
    if work.has_sinks != 0:
        sink, old = work.sinks[head], top
        top = max(old, sink)
        kept = shrink(old, top)
        denominator = denominator * first(kept) + first(shrink(sink, top))
    factor = mul(kept, spread(1 / denominator))
    for d in range(0, work.dim, LANES):
        out = work.out + 4 * (number * work.dim + d)
        store_some(out, mul(load(row + 4 * d), factor), work.dim - d)
    work.top[number], work.denominator[number] = top, denominator
