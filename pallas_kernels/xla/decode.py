"""Rows of one query: a list of equal work items, each one chunk of one context.

Batches of unequal lengths waste nothing, and a long context is processed in parallel: it is split
as in flash decoding, and its parts are merged by online softmax as they are computed. The items of
a row are consecutive, so P items at a time touch at most P neighbouring rows.
"""

from functools import partial

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from pallas_kernels.call import Call, Options, window_of
from pallas_kernels.ranges import cumulative, owner
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

# Tokens of context in one work item, rounded up to whole blocks.
CHUNK = 128
# Items processed together: first 8 at a time, then the rest singly. By position each is processed
# alone, since the order of a row's sums would depend on which of its items are together.
STEPS, ALONE = (8, 1), (1,)

# Weighted sum of values [R, H, D], largest score [R, H], sum of weights [R, H].
Rows = tuple[Array, Array, Array]


def attend_rows(call: Call, options: Options, metadata: XlaMetadata) -> Partial:
    """Attention [R, H, D] of all decode rows, in float32; zeros for rows beyond the last."""
    queries = call.q[metadata.row_token].astype(jnp.float32) * options.scale
    queries = scale_heads(queries, call, 0)
    num_rows, heads, dim = queries.shape
    # Padding, since the last step may extend beyond the last row.
    room = num_rows + STEPS[0]
    rows: Rows = (
        jnp.zeros((room, heads, dim), jnp.float32),
        jnp.full((room, heads), MASKED, jnp.float32),
        jnp.zeros((room, heads), jnp.float32),
    )
    chunk = chunk_blocks(CHUNK, call.kv_cache.shape[4]) * call.kv_cache.shape[4]
    low = _first_visible(metadata.row_context_len, window_of(call, options))
    # A row that exists has at least one item.
    items = cumulative(-(-metadata.row_context_len // chunk) - low // chunk)
    first = jnp.int32(0)
    for step in ALONE if metadata.by_position else STEPS:
        work = partial(_add_items, queries, call, options, metadata, items, step)
        count = (items[-1] - first) // step
        rows = lax.fori_loop(0, count, lambda i, r, f=first, w=work, s=step: w(f + i * s, r), rows)
        first += count * step
    out, lse = finish(*rows, None if call.sinks is None else call.sinks[None], options.return_lse)
    return scale_heads(out, call, 1)[:num_rows], None if lse is None else lse[:num_rows]


def _first_visible(
    context_len: Int[Array, " P"], window: int | Int[Array, ""] | None
) -> Int[Array, " P"]:
    return jnp.zeros_like(context_len) if window is None else jnp.maximum(context_len - window, 0)


def _add_items(
    queries: Float[Array, "R H D"],
    call: Call,
    options: Options,
    metadata: XlaMetadata,
    items: Int[Array, " n"],
    step: int,
    first: Int[Array, ""],
    rows: Rows,
) -> Rows:
    """Computes the items first:first+step, all of which exist, and merges them into their rows."""
    row = owner(items, first + jnp.arange(step, dtype=jnp.int32))
    part = first + jnp.arange(step, dtype=jnp.int32) - items[row]
    scores, mask, values = _score_items(queries, call, options, metadata, row, part)
    _, heads, dim = queries.shape
    grouped = scores.shape[:3]

    local = row - row[0]
    belongs = jnp.arange(step, dtype=jnp.int32)[:, None] == local
    out, top, denominator = (lax.dynamic_slice_in_dim(x, row[0], step) for x in rows)
    item_top = scores.max(-1).reshape(1, step, heads)
    new_top = jnp.maximum(top, jnp.where(belongs[..., None], item_top, MASKED).max(1))
    shift = new_top[local].reshape(*grouped, 1)
    weights = jnp.where(mask, jnp.exp(scores - shift), 0.0)
    item_out = jnp.einsum("pkgc,pkcd->pkgd", weights, values).reshape(step, heads, dim)
    keep = jnp.exp(top - new_top)
    merged = (
        out * keep[..., None] + _sum_items(belongs, item_out),
        new_top,
        denominator * keep + _sum_items(belongs, weights.sum(-1).reshape(step, heads)),
    )
    out, top, denominator = (
        lax.dynamic_update_slice_in_dim(x, y, row[0], 0) for x, y in zip(rows, merged, strict=True)
    )
    return out, top, denominator


def _score_items(
    queries: Float[Array, "R H D"],
    call: Call,
    options: Options,
    metadata: XlaMetadata,
    row: Int[Array, " P"],
    part: Int[Array, " P"],
) -> tuple[Float[Array, "P K G C"], Bool[Array, "P 1 1 C"], Float[Array, "P K C D"]]:
    """Scores, mask and values of P items; an item is the visible chunk number `part` of its row."""
    kv_heads, block_size, dim = call.kv_cache.shape[3:]
    blocks = chunk_blocks(CHUNK, block_size)
    chunk = blocks * block_size
    context_len = metadata.row_context_len[row]
    window = window_of(call, options)
    low = _first_visible(context_len, window)
    part = part + low // chunk
    read_from = None if window is None else low
    seq, first_block = metadata.row_seq[row], part * blocks
    keys, values = read_chunk(call, seq, first_block, read_from, context_len, blocks)
    position = part[:, None] * chunk + jnp.arange(chunk, dtype=jnp.int32)
    mask = ((position >= low[:, None]) & (position < context_len[:, None]))[:, None, None]
    grouped = queries[row].reshape(len(row), kv_heads, -1, dim)
    scores = jnp.einsum("pkgd,pkcd->pkgc", grouped, keys)
    bias = None
    if call.alibi_slopes is not None:
        distance = (position - context_len[:, None] + 1).astype(jnp.float32)
        bias = call.alibi_slopes.reshape(kv_heads, -1, 1) * distance[:, None, None]
    return adjust_scores(scores, mask, bias, options), mask, values


def _sum_items(belongs: Bool[Array, "P P"], values: Float[Array, "P ..."]) -> Float[Array, "P ..."]:
    """Sums each row's items. A product with `belongs` would spread one row's NaN to other rows."""
    select = belongs.reshape(belongs.shape + (1,) * (values.ndim - 1))
    return jnp.where(select, values, 0.0).sum(1)
