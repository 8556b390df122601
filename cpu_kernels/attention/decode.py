"""Decode attention: one part of a context for a few consecutive queries, or all parts for one.

A part reads its keys once and then its values, in memory order, for all of its queries. The thread
that finishes the last part merges all of them in their order, so the result does not depend on
which thread that is.

Nor does a query's result depend on the queries beside it. They score the keys that any of them
sees, and each masks those that it does not see. That puts a key in another lane than if the query
were alone, but the sum over lanes adds the same pairs (`prefill.py`). Values are different: one
that a query does not see may be no number, so it is added to the others' sums alone.
"""

from typing import Any

import numpy as np

from cpu_kernels.attention.pages import KEYS, VALUES, find_run, read_run
from cpu_kernels.attention.plan import (
    FEW,
    PART,
    Item,
    first_part,
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
from cpu_kernels.simd.widen import item_bytes

score_float32, score_bfloat16 = score_run_of(FLOAT32), score_run_of(BFLOAT16)
score_int8, score_float8 = score_run_of(INT8), score_run_of(FLOAT8)
add_float32, add_bfloat16 = add_run_of(FLOAT32), add_run_of(BFLOAT16)
add_int8, add_float8 = add_run_of(INT8), add_run_of(FLOAT8)


@inner
def decode_floats(work: Work) -> int:
    """Scratch in float32: queries, scores, one run of keys or values, and partial results."""
    rows = max(work.kv_heads * padded(work.group), padded(FEW * work.group))
    own = rows * (work.width + PART) + min(PART, work.block_size) * work.width
    return own + work.longest * partial_floats(work, 1, work.kv_heads)


@inner
def attend_decode(work: Work, item: Item, scratch: int) -> None:
    """Computes one part of decodes, and merges all if it was the last to finish; or all parts."""
    size = 4 * partial_floats(work, item.queries, item.heads)
    first = first_part(work, item.position)
    last = (item.position + item.queries - 1) // PART
    low = high = item.number
    partials, whole = item.partials, item.number < 0
    if whole:
        low, high = first, last
        partials = scratch + 4 * decode_floats(work) - (work.longest + first) * size
    if low < first or high > last:
        return  # other decodes of the sequence see it
    for part in range(low, high + 1):
        _attend_part(work, item, part, partials + part * size, scratch)
    if whole or fetch_add(item.finished, 1) == last - first:
        for query in range(item.queries):
            _merge(work, item, query, partials, scratch)


@inner
def _attend_part(work: Work, item: Item, part: int, sums: int, scratch: int) -> None:
    """Computes the partial results at `sums` of an item's queries."""
    low, rows = first_visible(work, item.position), padded(item.queries * work.group)
    start, stop = max(part * PART, low), min(part * PART + PART, item.position + item.queries)
    scores = scratch + 4 * item.heads * rows * work.width
    room = scores + 4 * item.heads * rows * PART
    for i in range(item.heads):
        queries = scratch + 4 * i * rows * work.width
        read_queries(work, item.token, item.queries, item.head + i, queries)
    _score(work, item, start, stop, scratch, scores, room)
    tops = sums + 4 * item.heads * rows * work.width
    _weigh_rows(work, item, start, stop, scores, tops)
    zero(sums, item.heads * rows * work.width)
    _add_values(work, item, start, stop, scores, sums, room)


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
    work: Work, item: Item, start: int, stop: int, queries: int, scores: int, room: int
) -> None:
    """Scores [rows, PART] of the keys at positions start:stop."""
    rows, position = padded(item.queries * work.group), start
    while position < stop:
        count: Any = np.int64(0)
        for i in range(item.heads):
            head, reach = item.head + i, (start, stop)
            keys, count, ahead = _read(work, KEYS, item.seq, head, position, reach, room)
            for row in range(i * rows, (i + 1) * rows, ROWS):
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
def _weigh_rows(work: Work, item: Item, start: int, stop: int, scores: int, tops: int) -> None:
    """Turns scores into weights, and stores each row's largest score and sum of weights."""
    used, columns = item.queries * work.group, -(-(stop - start) // LANES) * LANES
    rows = padded(used)
    for head in range(item.heads):
        for i in range(used):
            row, own = head * rows + i, item.position + i // work.group
            low, high = first_visible(work, own) - start, min(stop, own + 1) - start
            slope = slope_of(work, (item.head + head) * work.group + i % work.group)
            place, least = scores + 4 * row * PART, np.float32(MASKED)
            top = highest(place, columns, low, high, start - own, slope, work.soft_cap, least)
            put(tops + 4 * row, top)
    for head in range(item.heads):
        for row in range(head * rows, head * rows + used):
            total = weigh(scores + 4 * row * PART, columns, get(tops + 4 * row))
            put(tops + 4 * (item.heads * rows + row), total)


@inner
def _add_values(
    work: Work, item: Item, start: int, stop: int, weights: int, sums: int, room: int
) -> None:
    """Adds the values at positions start:stop, weighted, to the sums [rows, width]."""
    # All queries see the positions from `low` to `high`.
    low = min(max(first_visible(work, item.position + item.queries - 1), start), stop)
    high = min(max(item.position + 1, low), stop)
    _add_to_some(work, item, start, low, weights, sums, room)
    _add_to_all(work, item, low, high, weights + 4 * (low - start), sums, room)
    _add_to_some(work, item, high, stop, weights + 4 * (high - start), sums, room)


@inner
def _add_to_all(
    work: Work, item: Item, start: int, stop: int, weights: int, sums: int, room: int
) -> None:
    """Adds values that all queries see."""
    rows, position = padded(item.queries * work.group), start
    while position < stop:
        count: Any = np.int64(0)
        for i in range(item.heads):
            head, reach = item.head + i, (start, stop)
            values, count, ahead = _read(work, VALUES, item.seq, head, position, reach, room)
            for row in range(i * rows, (i + 1) * rows, ROWS):
                left = weights + 4 * (row * PART + position - start)
                out = sums + 4 * row * work.width
                _add(work, left, 4 * PART, values, count, out, 4 * work.width, ahead)
        position += count


@inner
def _add_to_some(
    work: Work, item: Item, start: int, stop: int, weights: int, sums: int, room: int
) -> None:
    """Adds values that not all queries see, row by row."""
    used, position = item.queries * work.group, start
    step = work.width * item_bytes(_product_kind(work))
    while position < stop:
        count: Any = np.int64(0)
        for i in range(item.heads):
            head, reach = item.head + i, (start, stop)
            values, count, _ = _read(work, VALUES, item.seq, head, position, reach, room)
            for j in range(used):
                own, row = item.position + j // work.group, i * padded(used) + j
                low = max(first_visible(work, own) - position, 0)
                high = min(own + 1 - position, count)
                if low < high:
                    left = weights + 4 * (row * PART + position + low - start)
                    out = sums + 4 * row * work.width
                    _add(work, left, 0, values + low * step, high - low, out, 0, 0)
        position += count


@inlined
def _add(
    work: Work,
    left: int,
    left_step: int,
    values: int,
    count: int,
    out: int,
    out_step: int,
    ahead: int,
) -> None:
    """Adds weighted values to four rows of sums, or with steps of 0 to one."""
    kind, width = _product_kind(work), work.width
    if kind == structs.FLOAT32:
        add_float32(left, left_step, values, count, out, out_step, width, ahead)
    elif kind == structs.BFLOAT16:
        add_bfloat16(left, left_step, values, count, out, out_step, width, ahead)
    elif kind == structs.INT8:
        add_int8(left, left_step, values, count, out, out_step, width, ahead)
    else:
        add_float8(left, left_step, values, count, out, out_step, width, ahead)


@inner
def _merge(work: Work, item: Item, query: int, partials: int, room: int) -> None:
    """Merges the parts that a query of an item sees; `room` holds one row."""
    rows, width = padded(item.queries * work.group), work.width
    step, position = 4 * partial_floats(work, item.queries, item.heads), item.position + query
    begin, end = first_part(work, position), position // PART + 1
    for i in range(item.heads * work.group):
        row = i // work.group * rows + query * work.group + i % work.group
        sums = partials + 4 * row * width
        tops = partials + 4 * (item.heads * rows * width + row)
        top = np.float32(MASKED)
        for part in range(begin, end):
            top = max(top, get(tops + part * step))
        zero(room, width)
        denominator = np.float32(0)
        for part in range(begin, end):
            total = get(tops + part * step + 4 * item.heads * rows)
            factor = shrink(get(tops + part * step), top)
            denominator += total * first(factor)
            for column in range(0, 4 * width, BYTES):
                old = load(room + column)
                store(room + column, madd(load(sums + part * step + column), factor, old))
        head = item.head * work.group + i
        write_row(work, item.token + query, head, room, top, denominator)
