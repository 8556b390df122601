"""Rungs 1 and 2: what can be said without writing a kernel."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int


def gather_and_softmax(
    q: Float[Array, "S H D"],
    kv_cache: Float[Array, "2 N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    *,
    scale: float,
) -> Float[Array, "S H D"]:
    """Rung 1: put all pages of every table side by side, then the textbook sum."""
    seqs, heads, dim = q.shape
    kv_heads = kv_cache.shape[2]
    pages = kv_cache[:, block_tables].swapaxes(2, 3)  # [2, S, K, W, B, D]
    keys, values = pages.reshape(2, seqs, kv_heads, -1, dim)
    seen = jnp.arange(keys.shape[2]) < context_lens[:, None, None]
    grouped = q.reshape(seqs, kv_heads, -1, dim)
    scores = jnp.einsum("skgd,sknd->skgn", grouped, keys) * scale
    weights = jax.nn.softmax(jnp.where(seen[:, :, None], scores, -jnp.inf))
    # A freed block may hold NaN, and 0 * NaN is NaN: the values are masked too.
    out = jnp.einsum("skgn,sknd->skgd", weights, jnp.where(seen[..., None], values, 0))
    return out.reshape(seqs, heads, dim)


def online_softmax(
    q: Float[Array, "S H D"],
    kv_cache: Float[Array, "2 N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    *,
    scale: float,
) -> Float[Array, "S H D"]:
    """Rung 2: a block at a time, with a running maximum and sum; stop at the longest context."""
    seqs, heads, dim = q.shape
    kv_heads, block_size = kv_cache.shape[2:4]
    grouped = q.reshape(seqs, kv_heads, -1, dim)

    def add_block(column: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        out, top, total = state
        keys, values = kv_cache[:, block_tables[:, column]]  # [S, K, B, D] each
        position = column * block_size + jnp.arange(block_size)
        seen = position < context_lens[:, None, None]
        scores = jnp.einsum("skgd,skbd->skgb", grouped, keys) * scale
        scores = jnp.where(seen[:, :, None], scores, -jnp.inf)
        new_top = jnp.maximum(top, scores.max(-1))
        keep = jnp.exp(top - new_top)  # what was added before was relative to the old maximum
        weights = jnp.exp(scores - new_top[..., None])
        values = jnp.where(seen[..., None], values, 0)
        out = out * keep[..., None] + jnp.einsum("skgb,skbd->skgd", weights, values)
        return out, new_top, total * keep + weights.sum(-1)

    rows = grouped.shape[:3]
    state = (jnp.zeros(grouped.shape), jnp.full(rows, -jnp.inf), jnp.zeros(rows))
    blocks = -(-context_lens.max() // block_size)
    out, _, total = lax.fori_loop(0, blocks, add_block, state)
    return (out / total[..., None]).reshape(seqs, heads, dim).astype(q.dtype)
