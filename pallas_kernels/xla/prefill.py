"""Sequences with several queries: tiles of queries against chunks of their context."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from pallas_kernels.call import Call, Options, window_of
from pallas_kernels.ranges import owner
from pallas_kernels.xla.blocks import (
    MASKED,
    Partial,
    adjust_scores,
    chunk_blocks,
    finish,
    read_chunk,
    scale_heads,
)
from pallas_kernels.xla.metadata import XlaMetadata

# Tokens of context that a tile processes at a time, rounded up to whole blocks.
CHUNK = 256

# Weighted sum of values [K, G*Q, D], largest score [K, G*Q], sum of weights [K, G*Q].
Tile = tuple[Array, Array, Array]


def attend_tiles(call: Call, options: Options, metadata: XlaMetadata) -> Partial:
    """Attention [T, H, D] of the queries in tiles; zeros for other tokens."""
    q, context_lens, query_start_loc = call.q, call.context_lens, call.query_start_loc
    size = metadata.tile_queries
    # Padding, since a tile may begin before the first token, or extend beyond the last one.
    queries = jnp.pad(q, ((size, size), (0, 0), (0, 0)))
    lse = jnp.full(queries.shape[:2], -jnp.inf) if options.return_lse else None

    def tile(i: Array, found: Partial) -> Partial:
        seq = owner(metadata.seq_tiles, i)
        first = query_start_loc[seq]
        start = first - metadata.seq_lead[seq] + (i - metadata.seq_tiles[seq]) * size
        begin = jnp.maximum(first - start, 0)
        count = jnp.minimum(first + metadata.seq_queries[seq] - start, size)
        position = context_lens[seq] - query_start_loc[seq + 1] + start
        mine = lax.dynamic_slice_in_dim(queries, start + size, size)
        result = _attend_tile(mine, call, options, seq, position, position + count)
        stored: Partial = jax.tree.map(partial(_store, start + size, begin, count), found, result)
        return stored

    found: Partial = lax.fori_loop(0, metadata.seq_tiles[-1], tile, (jnp.zeros_like(queries), lse))
    out, lse = found
    mine = slice(size, size + len(q))
    return out[mine], None if lse is None else lse[mine]


def _store(
    start: Int[Array, ""],
    begin: Int[Array, ""],
    end: Int[Array, ""],
    all_tokens: Float[Array, "T H ..."],
    tile: Float[Array, "Q H ..."],
) -> Float[Array, "T H ..."]:
    """Writes a tile's results begin:end; its first one belongs to token `start`."""
    row = jnp.arange(len(tile), dtype=jnp.int32).reshape(-1, *(1,) * (tile.ndim - 1))
    old = lax.dynamic_slice_in_dim(all_tokens, start, len(tile))
    new = jnp.where((row >= begin) & (row < end), tile.astype(old.dtype), old)
    return lax.dynamic_update_slice_in_dim(all_tokens, new, start, 0)


def _attend_tile(
    queries: Float[Array, "Q H D"],
    call: Call,
    options: Options,
    seq: Int[Array, ""],
    begin: Int[Array, ""],
    end: Int[Array, ""],
) -> Partial:
    """Attention of queries at positions begin:end of a sequence; arbitrary for others."""
    num, heads, dim = queries.shape
    kv_heads, block_size = call.kv_cache.shape[3:5]
    chunk = chunk_blocks(CHUNK, block_size) * block_size
    low = jnp.zeros_like(begin)
    window = window_of(call, options)
    if window is not None:
        low = jnp.maximum(begin - window + 1, 0)
    # Group all queries of a KV head, for one matrix product per head.
    scaled = scale_heads(queries.astype(jnp.float32) * options.scale, call, 0)
    grouped = scaled.reshape(num, kv_heads, -1, dim).transpose(1, 2, 0, 3)
    grouped = grouped.reshape(kv_heads, -1, dim)
    rows = grouped.shape[:2]
    state: Tile = (
        jnp.zeros_like(grouped),
        jnp.full(rows, MASKED, jnp.float32),
        jnp.zeros(rows, jnp.float32),
    )
    add = partial(_add_chunk, grouped, call, options, seq, low, begin, end, num)
    state = lax.fori_loop(low // chunk, -(-end // chunk), add, state)
    sinks = None if call.sinks is None else jnp.repeat(call.sinks.reshape(kv_heads, -1), num, 1)
    out, lse = finish(*state, sinks, options.return_lse)
    out = out.reshape(kv_heads, -1, num, dim).transpose(2, 0, 1, 3).reshape(num, heads, dim)
    if lse is not None:
        lse = lse.reshape(heads, num).T
    return scale_heads(out, call, 1), lse


def _add_chunk(
    grouped: Float[Array, "K GQ D"],
    call: Call,
    options: Options,
    seq: Int[Array, ""],
    low: Int[Array, ""],
    begin: Int[Array, ""],
    end: Int[Array, ""],
    num: int,
    i: Int[Array, ""],
    tile: Tile,
) -> Tile:
    """Attends to chunk i of the context."""
    out, top, denominator = tile
    block_size = call.kv_cache.shape[4]
    blocks = chunk_blocks(CHUNK, block_size)
    read_from = None if window_of(call, options) is None else low[None]
    keys, values = read_chunk(call, seq[None], (i * blocks)[None], read_from, end[None], blocks)
    key_position = i * blocks * block_size + jnp.arange(blocks * block_size, dtype=jnp.int32)
    query_position = begin + jnp.arange(num, dtype=jnp.int32)[:, None]
    scores = _mask_tile(
        jnp.einsum("kqd,kcd->kqc", grouped, keys[0]),
        key_position,
        query_position,
        end,
        call,
        options,
    )
    new_top = jnp.maximum(top, scores.max(-1))
    # If a row sees no key so far, MASKED - MASKED is 0 and its exponential 1, not 0.
    weights = jnp.where(scores > MASKED, jnp.exp(scores - new_top[..., None]), 0.0)
    keep = jnp.exp(top - new_top)
    out = out * keep[..., None] + jnp.einsum("kqc,kcd->kqd", weights, values[0])
    return out, new_top, denominator * keep + weights.sum(-1)


def _mask_tile(
    scores: Float[Array, "K GQ C"],
    key: Int[Array, " C"],
    query: Int[Array, "Q 1"],
    end: Int[Array, ""],
    call: Call,
    options: Options,
) -> Float[Array, "K GQ C"]:
    """Masks the scores of keys that a query may not see; `key` and `query` are positions."""
    mask: Bool[Array, "Q C"] = (key <= query) & (key < end)
    window = window_of(call, options)
    if window is not None:
        mask &= key > query - window
    kv_heads, _, chunk = scores.shape
    bias = None
    if call.alibi_slopes is not None:
        distance = (key - query).astype(jnp.float32)
        bias = call.alibi_slopes.reshape(kv_heads, -1, 1, 1) * distance
    split = scores.reshape(kv_heads, -1, *mask.shape)
    return adjust_scores(split, mask, bias, options).reshape(kv_heads, -1, chunk)
