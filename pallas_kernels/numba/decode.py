"""A sequence with one query token: one part of its context, for all heads of one KV head.

Keys are read once, and then values, in the order in which they lie. Whoever finishes the last part
of a sequence's head merges them all, in their order: the same bits whoever that is.
"""

import numpy as np

from pallas_kernels.numba.jit import inner
from pallas_kernels.numba.native import fetch_add
from pallas_kernels.numba.pages import KEYS, VALUES, read_run
from pallas_kernels.numba.plan import PART, Item, first_visible, partial_floats
from pallas_kernels.numba.products import ROWS, add_product, dots
from pallas_kernels.numba.rows import padded, read_queries, write_row, zero
from pallas_kernels.numba.softmax import MASKED, shrink, weigh
from pallas_kernels.numba.vectors import BYTES, LANES, first, get, get_int, load, madd, put, store
from pallas_kernels.numba.work import Work, slope_of


@inner
def decode_floats(work: Work) -> int:
    """Numbers of scratch: queries, scores, and one run of keys or values."""
    rows = padded(work.group)
    return rows * (work.width + PART) + min(PART, work.block_size) * work.width


@inner
def attend_part(work: Work, item: Item, scratch: int) -> None:
    """One part, and the merge if it is the last to be finished of its sequence's head."""
    last = get_int(work.lens + 4 * item.seq) - 1
    token = get_int(work.starts + 4 * item.seq)
    low, rows = first_visible(work, last), padded(work.group)
    start = (low // PART + item.index) * PART
    stop = min(start + PART, last + 1)
    start = max(start, low)
    queries, scores = scratch, scratch + 4 * rows * work.width
    room = scores + 4 * rows * PART
    sums = item.partials + 4 * item.index * work.kv_heads * partial_floats(work)
    sums += 4 * item.head * partial_floats(work)
    read_queries(work, token, np.int64(1), item.head, queries)
    _score(work, item, start, stop, queries, scores, room)
    tops, totals = sums + 4 * rows * work.width, sums + 4 * rows * (work.width + 1)
    for g in range(work.group):
        row = scores + 4 * g * PART
        count = stop - start
        slope = slope_of(work, item.head * work.group + g)
        top, total = weigh(
            row,
            -(-count // LANES) * LANES,
            np.int64(0),
            count,
            start - last,
            slope,
            work.cap,
            np.float32(MASKED),
        )
        put(tops + 4 * g, top)
        put(totals + 4 * g, total)
    zero(sums, rows * work.width)
    _add_values(work, item, start, stop, scores, sums, room)
    if fetch_add(item.finished, 1) == item.count - 1:
        _merge(work, item, token, queries)


@inner
def _score(
    work: Work, item: Item, start: int, stop: int, queries: int, scores: int, room: int
) -> None:
    """Scores [rows, PART] of the keys at positions start:stop."""
    step = 4 * work.width
    position = start
    while position < stop:
        keys, count = read_run(work, KEYS, item.seq, item.head, position, stop, room)
        for row in range(0, work.group, ROWS):
            out = scores + 4 * (row * PART + position - start)
            for i in range(count):
                dots(queries + row * step, step, keys + i * step, out + 4 * i, 4 * PART)
        position += count


@inner
def _add_values(
    work: Work, item: Item, start: int, stop: int, weights: int, sums: int, room: int
) -> None:
    """Adds the values at positions start:stop, weighted, to the sums [rows, width]."""
    step = 4 * work.width
    position = start
    while position < stop:
        values, count = read_run(work, VALUES, item.seq, item.head, position, stop, room)
        for row in range(0, work.group, ROWS):
            left = weights + 4 * (row * PART + position - start)
            for column in range(0, step, BYTES):
                out = sums + row * step + column
                add_product(left, 4 * PART, values + column, step, count, out, step)
        position += count


@inner
def _merge(work: Work, item: Item, token: int, row: int) -> None:
    """The result of a sequence's head out of all of its parts; `row` is a vector of scratch."""
    rows, width = padded(work.group), work.width
    step = 4 * work.kv_heads * partial_floats(work)
    base = item.partials + 4 * item.head * partial_floats(work)
    for g in range(work.group):
        sums, tops = base + 4 * g * width, base + 4 * (rows * width + g)
        top = np.float32(MASKED)
        for part in range(item.count):
            top = max(top, get(tops + part * step))
        zero(row, width)
        denominator = np.float32(0)
        for part in range(item.count):
            factor = shrink(get(tops + part * step), top)
            denominator += get(tops + part * step + 4 * rows) * first(factor)
            for column in range(0, 4 * width, BYTES):
                old = load(row + column)
                store(row + column, madd(load(sums + part * step + column), factor, old))
        write_row(work, token, item.head * work.group + g, row, top, denominator)
