"""Prefill attention: one tile of a sequence's queries, for the query heads of one KV head.

Each chunk of keys and values is first packed for the products, in float32: keys as columns, 16 side
by side, values in columns of 16. All rows of the tile then use the packed chunk. The first chunk
begins where the tile's first query begins to see keys. So a window puts a key in another lane in
another tile, and its row's lanes are turned. The sum over lanes adds the same pairs however they
are turned (`total_in_order`).
"""

import numpy as np

from cpu_kernels.attention.pages import KEYS, VALUES, read_run
from cpu_kernels.attention.plan import (
    TILE_ROWS,
    Item,
    first_visible,
    prompt_queries,
    tile_count,
    tile_queries,
)
from cpu_kernels.attention.rows import padded, read_queries, write_row, zero
from cpu_kernels.attention.softmax import MASKED, highest, scale_row, shrink, weigh
from cpu_kernels.attention.work import Work, slope_of
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS, micro_kernel_of
from cpu_kernels.simd.packing import pack
from cpu_kernels.simd.vectors import BYTES, LANES, first, get, load, put, store
from cpu_kernels.simd.words import Floats

# Keys in a chunk.
CHUNK = 128

add_tile = micro_kernel_of(ROWS, Floats)


@inner
def prefill_floats(work: Work) -> int:
    """Scratch in float32: queries, sums, tops, totals, keys, values, scores, and one run."""
    rows = padded(max(TILE_ROWS, work.group))
    run = min(CHUNK, work.block_size)
    return rows * (2 * work.width + 2) + (2 * CHUNK + run) * work.width + ROWS * CHUNK


@inner
def attend_tile(work: Work, item: Item, scratch: int) -> None:
    """Computes one tile; item number 0 is the sequence's last tile."""
    width, size = work.width, tile_queries(work)
    tile = (tile_count(work, item.seq) - 1 - item.number) * size
    count = min(size, prompt_queries(work, item.seq) - tile)
    token = item.token + tile
    # Position of the tile's first query.
    begin = item.position + tile
    rows = padded(count * work.group)
    sums = scratch + 4 * rows * width
    tops, keys = sums + 4 * rows * width, sums + 4 * rows * (width + 2)
    read_queries(work, token, count, item.head, scratch)
    zero(sums, rows * width)
    for row in range(rows):
        put(tops + 4 * row, np.float32(MASKED))
        put(tops + 4 * (rows + row), np.float32(0))
    low = first_visible(work, begin)
    for start in range(low // CHUNK * CHUNK, begin + count, CHUNK):
        near, stop = max(start, low), min(start + CHUNK, begin + count)
        values = keys + 4 * CHUNK * width
        room = values + 4 * CHUNK * width
        _lay_keys(work, item, near, stop, keys, room)
        _lay_values(work, item, near, stop, values, room)
        for row in range(0, count * work.group, ROWS):
            _add_chunk(work, item, begin, count, row, near, stop, scratch, rows)
    for i in range(count):
        for g in range(work.group):
            row = i * work.group + g
            top, total = get(tops + 4 * row), get(tops + 4 * (rows + row))
            head = item.head * work.group + g
            write_row(work, token + i, head, sums + 4 * row * width, top, total)


@inner
def _lay_keys(work: Work, item: Item, start: int, stop: int, keys: int, room: int) -> None:
    """Packs keys to [CHUNK / 16, width, 16]: the numbers of 16 keys side by side."""
    width = work.width
    position = start
    while position < stop:
        run, count, _ = read_run(work, KEYS, item.seq, item.head, position, (start, stop), room)
        i = 0
        while i < count:
            key, column = run + 4 * i * width, position - start + i
            place = keys + 4 * (column // LANES * LANES * width + column % LANES)
            if column % LANES == 0:
                # Fewer than 16 keys leave copies of the last one in columns that are masked or
                # overwritten by the next keys.
                pack(key, 4 * width, count - 1 - i, work.dim, place, BYTES)
                i += LANES
            else:
                for d in range(work.dim):
                    put(place + d * BYTES, get(key + 4 * d))
                i += 1
        position += count


@inner
def _lay_values(work: Work, item: Item, start: int, stop: int, values: int, room: int) -> None:
    """Packs values to [width / 16, CHUNK, 16]."""
    step = 4 * work.width
    position = start
    while position < stop:
        run, count, _ = read_run(work, VALUES, item.seq, item.head, position, (start, stop), room)
        for i in range(count):
            place = values + (position - start + i) * BYTES
            for column in range(0, step, BYTES):
                store(place + column * CHUNK, load(run + i * step + column))
        position += count


@inner
def _add_chunk(
    work: Work,
    item: Item,
    begin: int,
    count: int,
    row: int,
    start: int,
    stop: int,
    queries: int,
    rows: int,
) -> None:
    """ROWS rows' attention to the chunk of keys at positions start:stop."""
    width, group = work.width, work.group
    sums = queries + 4 * rows * width
    tops = sums + 4 * (rows * width + row)
    totals = tops + 4 * rows
    keys = sums + 4 * rows * (width + 2)
    values = keys + 4 * CHUNK * width
    scores = values + 4 * CHUNK * width + 4 * min(CHUNK, work.block_size) * width
    used = min(ROWS, count * group - row)
    # Number of keys that the last row sees; later keys are not computed.
    seen = min(stop, begin + (row + used - 1) // group + 1) - start
    if seen <= 0:
        return
    columns = -(-seen // LANES) * LANES
    left, step = queries + 4 * row * width, 4 * width
    multiply_tiles(left, step, used, keys, BYTES * width, work.dim, scores, 4 * CHUNK, columns, 0)
    for i in range(used):
        position = begin + (row + i) // group
        head = item.head * group + (row + i) % group
        low = first_visible(work, position) - start
        old, high, slope = get(tops + 4 * i), position + 1 - start, slope_of(work, head)
        away, place = start - position, scores + 4 * i * CHUNK
        top = highest(place, columns, low, min(high, seen), away, slope, work.soft_cap, old)
        if top != old:
            keep = shrink(old, top)
            scale_row(sums + (row + i) * step, width, keep)
            put(tops + 4 * i, top)
            put(totals + 4 * i, get(totals + 4 * i) * first(keep))
    for i in range(used):
        added = weigh(scores + 4 * i * CHUNK, columns, get(tops + 4 * i))
        put(totals + 4 * i, get(totals + 4 * i) + added)
    multiply_tiles(
        scores, 4 * CHUNK, used, values, BYTES * CHUNK, seen, sums + row * step, step, width, 1
    )


@inner
def multiply_tiles(
    left: int,
    left_step: int,
    rows: int,
    right: int,
    apart: int,
    depth: int,
    out: int,
    out_step: int,
    columns: int,
    more: int,
) -> None:
    """out [rows, columns] = or += left @ right [depth, columns]; see `micro_kernel_of`."""
    for column in range(0, columns, COLUMNS):
        rest, start = columns - column, right + column // LANES * apart
        # If only 16 columns are left, the product uses them twice.
        next_to = apart if rest > LANES else 0
        place = out + 4 * column
        add_tile(
            left,
            left_step,
            rows - 1,
            start,
            BYTES,
            next_to,
            depth,
            place,
            out_step,
            rest,
            more,
            start,  # prefetches memory that is in cache already
            0,
        )
