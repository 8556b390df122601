"""A sequence with one query token: one part of its context.

Keys are read once, and then values, in the order in which they lie. Whoever finishes the last part
of a sequence merges them all, in their order: the same bits whoever that is.
"""

from typing import Any

import numpy as np

from pallas_kernels.numba.jit import inner
from pallas_kernels.numba.native import fetch_add
from pallas_kernels.numba.pages import KEYS, VALUES, read_run
from pallas_kernels.numba.plan import PART, Item, first_visible, partial_floats
from pallas_kernels.numba.products import ROWS, add_products, dots
from pallas_kernels.numba.rows import padded, read_queries, write_row, zero
from pallas_kernels.numba.softmax import MASKED, highest, shrink, weigh
from pallas_kernels.numba.vectors import BYTES, LANES, first, get, get_int, load, madd, put, store
from pallas_kernels.numba.work import Work, slope_of


@inner
def decode_floats(work: Work) -> int:
    """Numbers of scratch: queries, scores, and one run of keys or values."""
    rows = work.kv_heads * padded(work.group)
    return rows * (work.width + PART) + min(PART, work.block_size) * work.width


@inner
def attend_part(work: Work, item: Item, scratch: int) -> None:
    """One part, and the merge if it is the last of its sequence to be finished."""
    last = get_int(work.lens + 4 * item.seq) - 1
    token = get_int(work.starts + 4 * item.seq)
    low, rows = first_visible(work, last), work.kv_heads * padded(work.group)
    start = (low // PART + item.number) * PART
    stop = min(start + PART, last + 1)
    start = max(start, low)
    scores = scratch + 4 * rows * work.width
    room = scores + 4 * rows * PART
    sums = item.partials + 4 * item.number * partial_floats(work)
    for head in range(work.kv_heads):
        queries = scratch + 4 * head * padded(work.group) * work.width
        read_queries(work, token, np.int64(1), head, queries)
    _score(work, item.seq, start, stop, scratch, scores, room)
    _weigh_rows(work, start, stop, last, scores, sums + 4 * rows * work.width)
    zero(sums, rows * work.width)
    _add_values(work, item.seq, start, stop, scores, sums, room)
    if fetch_add(item.finished, 1) == item.total - 1:
        _merge(work, item, token, scratch)


@inner
def _score(
    work: Work, seq: int, start: int, stop: int, queries: int, scores: int, room: int
) -> None:
    """Scores [rows, PART] of the keys at positions start:stop."""
    step, rows = 4 * work.width, padded(work.group)
    position = start
    while position < stop:
        count: Any = np.int64(0)
        for head in range(work.kv_heads):
            keys, count, ahead = read_run(work, KEYS, seq, head, position, (start, stop), room)
            for row in range(head * rows, (head + 1) * rows, ROWS):
                left, out = queries + row * step, scores + 4 * (row * PART + position - start)
                for i in range(count):
                    dots(left, step, keys + i * step, out + 4 * i, 4 * PART, ahead)
        position += count


@inner
def _weigh_rows(work: Work, start: int, stop: int, last: int, scores: int, tops: int) -> None:
    """Scores to weights; their tops and totals."""
    rows, count = padded(work.group), stop - start
    columns = -(-count // LANES) * LANES
    for head in range(work.heads):
        row = head // work.group * rows + head % work.group
        scores_of = scores + 4 * row * PART
        away, slope = start - last, slope_of(work, head)
        top = highest(
            scores_of, columns, np.int64(0), count, away, slope, work.cap, np.float32(MASKED)
        )
        put(tops + 4 * row, top)
    for head in range(work.heads):
        row = head // work.group * rows + head % work.group
        total = weigh(scores + 4 * row * PART, columns, get(tops + 4 * row))
        put(tops + 4 * (work.kv_heads * rows + row), total)


@inner
def _add_values(
    work: Work, seq: int, start: int, stop: int, weights: int, sums: int, room: int
) -> None:
    """Adds the values at positions start:stop, weighted, to the sums [rows, width]."""
    step, rows = 4 * work.width, padded(work.group)
    position = start
    while position < stop:
        count: Any = np.int64(0)
        for head in range(work.kv_heads):
            values, count, ahead = read_run(work, VALUES, seq, head, position, (start, stop), room)
            for row in range(head * rows, (head + 1) * rows, ROWS):
                left = weights + 4 * (row * PART + position - start)
                out = sums + row * step
                add_products(
                    left, 4 * PART, values, step, BYTES, count, out, step, work.width, ahead
                )
        position += count


@inner
def _merge(work: Work, item: Item, token: int, room: int) -> None:
    """A sequence's result out of all of its parts; `room` is for one vector."""
    rows, width = padded(work.group), work.width
    step = 4 * partial_floats(work)
    for head in range(work.heads):
        row = head // work.group * rows + head % work.group
        sums = item.partials + 4 * row * width
        tops = item.partials + 4 * (work.kv_heads * rows * width + row)
        top = np.float32(MASKED)
        for part in range(item.total):
            top = max(top, get(tops + part * step))
        zero(room, width)
        denominator = np.float32(0)
        for part in range(item.total):
            total = get(tops + part * step + 4 * work.kv_heads * rows)
            factor = shrink(get(tops + part * step), top)
            denominator += total * first(factor)
            for column in range(0, 4 * width, BYTES):
                old = load(room + column)
                store(room + column, madd(load(sums + part * step + column), factor, old))
        write_row(work, token, head, room, top, denominator)
