"""Attention without a cache: each token attends to its whole sequence, or to a window around it.

A work item is a tile of one sequence's queries, for the query heads of one KV head. Tiles, and the
chunks of keys that a tile goes through, are counted from the sequence's first token, so a token's
bits depend on its sequence alone. Keys and values are read where the projection has left them. A
chunk of them is packed once for all rows of a tile, as in `prefill.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cpu_kernels.attention.prefill import CHUNK, multiply_tiles
from cpu_kernels.attention.rows import padded, zero
from cpu_kernels.attention.softmax import MASKED, highest, scale_row, shrink, weigh
from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.memory import clear
from cpu_kernels.simd.micro_kernel import ROWS
from cpu_kernels.simd.packing import pack
from cpu_kernels.simd.vectors import (
    BYTES,
    LANES,
    first,
    get,
    load,
    load_some,
    mul,
    put,
    spread,
    store,
    store_some,
)

NAME = "cpu_kernels.bidirectional_attention"
# Query vectors (tokens times heads of a group) in one tile.
TILE_ROWS = 192


def attention(
    qkv: Float[Array, "T heads D"],
    query_start_loc: Int[Array, " starts"],
    *,
    num_heads: int,
    scale: float,
    window: int | Int[Array, ""],
) -> Float[Array, "T H D"]:
    """See `pallas_kernels.bidirectional_attention`. Tokens of no sequence get zeros.

    Args:
        qkv: float32, the H query heads, then the K key heads, then those of values.
        window: 0 for the whole sequence.
    """
    tokens, heads, dim = qkv.shape
    size = _tile_tokens(2 * num_heads // (heads - num_heads))
    starts = query_start_loc.astype(jnp.int32)
    tiles = jnp.cumsum(-(-jnp.diff(starts) // size), dtype=jnp.int32)
    tiles = jnp.pad(tiles, (1, 0))
    result = jax.ShapeDtypeStruct((tokens, num_heads, dim), jnp.float32)
    call = jax.ffi.ffi_call(NAME, result)
    out: Array = call(qkv, starts, tiles, jnp.float32(scale), jnp.asarray(window, jnp.int32))
    return out


def _tile_tokens(group: int) -> int:
    """Query tokens in one tile."""
    return max(TILE_ROWS // group, 1)


@inner
def _kv_heads(call: Any) -> int:
    return (call.qkv.shape[1] - call.out.shape[1]) // 2


@inner
def _width(call: Any) -> int:
    """D, rounded up to whole vectors."""
    return -(-call.qkv.shape[2] // LANES) * LANES


@inner
def _items(call: Any) -> int:
    """Clears what belongs to no sequence; the first item of each sequence is in `tiles`."""
    out, seqs = call.out.shape, call.tiles.shape[0] - 1
    end, size = call.starts.int32[seqs], 4 * out[1] * out[2]
    if end < out[0]:
        clear(call.out.address + end * size, (out[0] - end) * size)
    return call.tiles.int32[seqs] * _kv_heads(call)


@inner
def _scratch(call: Any) -> int:
    """Queries, their sums, tops and totals; a chunk's keys, values and scores: all float32."""
    rows = padded(max(TILE_ROWS, call.out.shape[1] // _kv_heads(call)))
    width = _width(call)
    return 4 * (rows * (2 * width + 2) + 2 * CHUNK * width + ROWS * CHUNK)


@inner
def _sequence_of(call: Any, tile: int) -> int:
    low, high = 0, call.tiles.shape[0] - 1
    while high - low > 1:
        middle = (low + high) // 2
        if call.tiles.int32[middle] <= tile:
            low = middle
        else:
            high = middle
    return low


@inner
def _row_of(call: Any, token: int, head: int) -> int:
    """Address of one head of a token, among queries, keys and values."""
    shape = call.qkv.shape
    return call.qkv.address + 4 * (token * shape[1] + head) * shape[2]


@inner
def _read_queries(call: Any, token: int, count: int, head: int, group: int, rows: int) -> None:
    """Writes scaled queries; row i * G + g is token i and head g."""
    dim, width, scale = call.qkv.shape[2], _width(call), spread(call.scale.float32[0])
    zero(rows, padded(count * group) * width)
    for row in range(count * group):
        query = _row_of(call, token + row // group, head + row % group)
        for d in range(0, dim, LANES):
            store(rows + 4 * (row * width + d), mul(load_some(query + 4 * d, dim - d), scale))


@inner
def _lay_keys(call: Any, token: int, count: int, head: int, keys: int) -> None:
    """Packs keys to [CHUNK / 16, width, 16]: the numbers of 16 keys side by side."""
    shape, width = call.qkv.shape, _width(call)
    step = 4 * shape[1] * shape[2]
    for i in range(0, count, LANES):
        # The last key fills up a vector; what it gives there is masked.
        key = _row_of(call, token + i, head)
        pack(key, step, count - 1 - i, shape[2], keys + 4 * i * width, BYTES)


@inner
def _lay_values(call: Any, token: int, count: int, head: int, values: int) -> None:
    """Packs values to [width / 16, CHUNK, 16]."""
    dim = call.qkv.shape[2]
    for i in range(count):
        value, place = _row_of(call, token + i, head), values + i * BYTES
        for d in range(0, dim, LANES):
            store(place + 4 * d * CHUNK, load_some(value + 4 * d, dim - d))


@inner
def _add_chunk(
    width: int,
    group: int,
    row: int,
    used: int,
    away: int,
    reach: int,
    seen: int,
    queries: int,
    rows: int,
    dim: int,
) -> None:
    """The attention of `used` rows to the `seen` keys of a chunk.

    Args:
        away: position of the chunk's first key minus that of the first row's query.
        reach: how many positions a query sees to each side.
    """
    step = 4 * width
    sums = queries + step * (rows + row)
    tops = queries + 4 * (2 * rows * width + row)
    totals = tops + 4 * rows
    keys = queries + 4 * rows * (2 * width + 2)
    values = keys + CHUNK * step
    scores = values + CHUNK * step
    columns = -(-seen // LANES) * LANES
    left = queries + step * row
    multiply_tiles(left, step, used, keys, BYTES * width, dim, scores, 4 * CHUNK, columns, 0)
    for i in range(used):
        middle = (row + i) // group - row // group - away
        low, high = max(0, middle - reach), min(seen, middle + reach + 1)
        old, place = get(tops + 4 * i), scores + 4 * i * CHUNK
        top = highest(place, columns, low, high, 0, np.float32(0), np.float32(0), old)
        if top != old:
            keep = shrink(old, top)
            scale_row(sums + step * i, width, keep)
            put(tops + 4 * i, top)
            put(totals + 4 * i, get(totals + 4 * i) * first(keep))
    for i in range(used):
        added = weigh(scores + 4 * i * CHUNK, columns, get(tops + 4 * i))
        put(totals + 4 * i, get(totals + 4 * i) + added)
    multiply_tiles(scores, 4 * CHUNK, used, values, BYTES * CHUNK, seen, sums, step, width, 1)


@inner
def _write_row(call: Any, number: int, row: int, total: Any) -> None:
    """Writes a query head's result: a row of sums over the total of their weights."""
    dim, factor = call.out.shape[2], spread(1 / total)
    for d in range(0, dim, LANES):
        out = call.out.address + 4 * (number * dim + d)
        store_some(out, mul(load(row + 4 * d), factor), dim - d)


@cpu_kernel(
    NAME,
    operands="qkv starts tiles scale window",
    results="out",
    items=_items,
    scratch=_scratch,
)
@inner
def _attend(call: Any, item: int, scratch: int) -> None:
    """One tile for the query heads of one KV head."""
    heads, kv_heads, width = call.out.shape[1], _kv_heads(call), _width(call)
    group, tile, head = heads // kv_heads, item // kv_heads, item % kv_heads
    seq = _sequence_of(call, tile)
    begin, length = call.starts.int32[seq], call.starts.int32[seq + 1] - call.starts.int32[seq]
    size = max(TILE_ROWS // group, 1)
    position = (tile - call.tiles.int32[seq]) * size
    count = min(size, length - position)
    window = call.window.int32[0]
    reach = length if window == 0 else window - 1
    rows = padded(count * group)
    sums = scratch + 4 * rows * width
    tops, keys = sums + 4 * rows * width, sums + 4 * rows * (width + 2)
    values = keys + 4 * CHUNK * width
    _read_queries(call, begin + position, count, head * group, group, scratch)
    zero(sums, rows * width)
    for row in range(rows):
        put(tops + 4 * row, np.float32(MASKED))
        put(tops + 4 * (rows + row), np.float32(0))
    low, high = max(0, position - reach), min(length, position + count + reach)
    for start in range(low // CHUNK * CHUNK, high, CHUNK):
        seen = min(start + CHUNK, high) - start
        _lay_keys(call, begin + start, seen, heads + head, keys)
        _lay_values(call, begin + start, seen, heads + kv_heads + head, values)
        for row in range(0, count * group, ROWS):
            used = min(ROWS, count * group - row)
            away = start - position - row // group
            _add_chunk(width, group, row, used, away, reach, seen, scratch, rows, call.qkv.shape[2])
    for i in range(count * group):
        token, own = begin + position + i // group, head * group + i % group
        total = get(tops + 4 * (rows + i))
        _write_row(call, token * heads + own, sums + 4 * i * width, total)
