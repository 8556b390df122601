"""Decode attention: one part of the context of one query, or all parts.

A part reads its keys once and then its values, in memory order. The thread that finishes the last
part of a query merges all of them in their order, so the result does not depend on which thread
that is.
"""

from typing import Any

import numpy as np

from cpu_kernels.attention.pages import KEYS, VALUES, find_run, read_run
from cpu_kernels.attention.plan import (
    PART,
    Item,
    first_part,
    first_position,
    first_visible,
    partial_floats,
)
from cpu_kernels.attention.rows import padded, read_queries, write_row, zero
from cpu_kernels.attention.softmax import MASKED, highest, shrink, weigh
from cpu_kernels.attention.work import Work, slope_of
from cpu_kernels.compiling.jit import inlined, inner
from cpu_kernels.simd import structs
from cpu_kernels.simd.memory import fetch_add
from cpu_kernels.simd.products import (
    BFLOAT16,
    FLOAT8,
    FLOAT32,
    INT8,
    ROWS,
    add_run_of,
    score_run_of,
)
from cpu_kernels.simd.vectors import BYTES, LANES, first, get, load, madd, put, store

score_float32, score_bfloat16 = score_run_of(FLOAT32), score_run_of(BFLOAT16)
score_int8, score_float8 = score_run_of(INT8), score_run_of(FLOAT8)
add_float32, add_bfloat16 = add_run_of(FLOAT32), add_run_of(BFLOAT16)
add_int8, add_float8 = add_run_of(INT8), add_run_of(FLOAT8)


@inner
def decode_floats(work: Work) -> int:
    """Scratch in float32: queries, scores, one run of keys or values, and partial results."""
    rows = work.kv_heads * padded(work.group)
    own = rows * (work.width + PART) + min(PART, work.block_size) * work.width
    return own + work.longest * partial_floats(work)


@inner
def attend_decode(work: Work, item: Item, scratch: int) -> None:
    """Computes one part of a decode, and merges all if it was the last to finish; or all parts."""
    seq, size = item.seq, 4 * partial_floats(work)
    position = first_position(work, seq) + item.token - work.query_start_loc[seq]
    first, last = first_part(work, position), position // PART
    low = high = item.number
    partials, whole = item.partials, item.number < 0
    if whole:
        low, high = first, last
        partials = scratch + 4 * decode_floats(work) - (work.longest + first) * size
    if low < first or high > last:
        return  # another decode of the sequence sees it
    for part in range(low, high + 1):
        _attend_part(work, item, position, part, partials + part * size, scratch)
    if whole or fetch_add(item.finished, 1) == last - first:
        _merge(work, partials + first * size, last + 1 - first, item.token, scratch)


@inner
def _attend_part(work: Work, item: Item, position: int, part: int, sums: int, scratch: int) -> None:
    """Computes the partial result at `sums` of the query at a position."""
    low, rows = first_visible(work, position), work.kv_heads * padded(work.group)
    start, stop = max(part * PART, low), min(part * PART + PART, position + 1)
    scores = scratch + 4 * rows * work.width
    room = scores + 4 * rows * PART
    for head in range(work.kv_heads):
        queries = scratch + 4 * head * padded(work.group) * work.width
        read_queries(work, item.token, np.int64(1), head, queries)
    _score(work, item.seq, start, stop, scratch, scores, room)
    _weigh_rows(work, start, stop, position, scores, sums + 4 * rows * work.width)
    zero(sums, rows * work.width)
    _add_values(work, item.seq, start, stop, scores, sums, room)


@inlined
def _product_kind(work: Work) -> int:
    """The dtype that products read: the cache's, widened in registers, or float32 of a copy."""
    in_registers = work.kind != structs.FLOAT16 and work.dim == work.width
    return work.kind if in_registers else structs.FLOAT32


@inlined
def _read(
    work: Work, which: int, seq: int, head: int, position: int, reach: tuple[int, int], room: int
) -> tuple[int, int, Any]:
    if _product_kind(work) != structs.FLOAT32:
        return find_run(work, which, seq, head, position, reach)
    return read_run(work, which, seq, head, position, reach, room)


@inner
def _score(
    work: Work, seq: int, start: int, stop: int, queries: int, scores: int, room: int
) -> None:
    """Scores [rows, PART] of the keys at positions start:stop."""
    rows, position = padded(work.group), start
    while position < stop:
        count: Any = np.int64(0)
        for head in range(work.kv_heads):
            keys, count, ahead = _read(work, KEYS, seq, head, position, (start, stop), room)
            for row in range(head * rows, (head + 1) * rows, ROWS):
                left = queries + 4 * row * work.width
                out = scores + 4 * (row * PART + position - start)
                kind = _product_kind(work)
                if kind == structs.FLOAT32:
                    score_float32(left, work.width, keys, count, out, 4 * PART, ahead)
                elif kind == structs.BFLOAT16:
                    score_bfloat16(left, work.width, keys, count, out, 4 * PART, ahead)
                elif kind == structs.INT8:
                    score_int8(left, work.width, keys, count, out, 4 * PART, ahead)
                else:
                    score_float8(left, work.width, keys, count, out, 4 * PART, ahead)
        position += count


@inner
def _weigh_rows(work: Work, start: int, stop: int, last: int, scores: int, tops: int) -> None:
    """Turns scores into weights, and stores each row's largest score and sum of weights."""
    rows, count = padded(work.group), stop - start
    columns = -(-count // LANES) * LANES
    for head in range(work.heads):
        row = head // work.group * rows + head % work.group
        scores_of = scores + 4 * row * PART
        away, slope = start - last, slope_of(work, head)
        top = highest(
            scores_of, columns, np.int64(0), count, away, slope, work.soft_cap, np.float32(MASKED)
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
    rows, position = padded(work.group), start
    while position < stop:
        count: Any = np.int64(0)
        for head in range(work.kv_heads):
            values, count, ahead = _read(work, VALUES, seq, head, position, (start, stop), room)
            for row in range(head * rows, (head + 1) * rows, ROWS):
                left = weights + 4 * (row * PART + position - start)
                out = sums + 4 * row * work.width
                kind = _product_kind(work)
                if kind == structs.FLOAT32:
                    add_float32(left, 4 * PART, values, count, out, work.width, ahead)
                elif kind == structs.BFLOAT16:
                    add_bfloat16(left, 4 * PART, values, count, out, work.width, ahead)
                elif kind == structs.INT8:
                    add_int8(left, 4 * PART, values, count, out, work.width, ahead)
                else:
                    add_float8(left, 4 * PART, values, count, out, work.width, ahead)
        position += count


@inner
def _merge(work: Work, partials: int, parts: int, token: int, room: int) -> None:
    """Merges the parts of a query; `room` holds one row."""
    rows, width = padded(work.group), work.width
    step = 4 * partial_floats(work)
    for head in range(work.heads):
        row = head // work.group * rows + head % work.group
        sums = partials + 4 * row * width
        tops = partials + 4 * (work.kv_heads * rows * width + row)
        top = np.float32(MASKED)
        for part in range(parts):
            top = max(top, get(tops + part * step))
        zero(room, width)
        denominator = np.float32(0)
        for part in range(parts):
            total = get(tops + part * step + 4 * work.kv_heads * rows)
            factor = shrink(get(tops + part * step), top)
            denominator += total * first(factor)
            for column in range(0, 4 * width, BYTES):
                old = load(room + column)
                store(room + column, madd(load(sums + part * step + column), factor, old))
        write_row(work, token, head, room, top, denominator)
