"""A paged attention of your own, in JAX: what docs/tutorial/add-a-kernel.md builds.

    python -m pytest tests/kernels --kernel examples.own_kernel:first_try
    python -m pytest tests/kernels --kernel examples.own_kernel:paged_attention

The first is what one writes first, and fails. Options that are not in a signature are skipped.
"""

import jax
import jax.numpy as jnp


def owners(
    num_tokens: int, context_lens: jax.Array, query_start_loc: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Each token's sequence, its position there, and whether it belongs to any."""
    token = jnp.arange(num_tokens)
    seq = jnp.searchsorted(query_start_loc, token, side="right") - 1
    seq = jnp.minimum(seq, len(context_lens) - 1)
    position = context_lens[seq] - query_start_loc[seq + 1] + token
    return seq, position, token < query_start_loc[-1]


def walk(
    q: jax.Array,
    kv_cache: jax.Array,
    block_tables: jax.Array,
    context_lens: jax.Array,
    query_start_loc: jax.Array,
    *,
    layer: jax.Array,
    scale: float,
    mask_values: bool,
) -> jax.Array:
    """All tokens side by side, a block of each one's context at a time, by online softmax."""
    kv_heads, block_size = kv_cache.shape[3:5]
    seq, position, real = owners(len(q), context_lens, query_start_loc)
    grouped = q.reshape(len(q), kv_heads, -1, q.shape[2]).astype(jnp.float32) * scale

    def add_block(column: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        out, top, total = state
        block = block_tables[seq, column]
        keys, values = kv_cache[layer][:, block].astype(jnp.float32)  # [T, K, B, D] each
        slot = column * block_size + jnp.arange(block_size)
        seen = ((slot <= position[:, None]) & real[:, None])[:, None, None]  # [T, 1, 1, B]
        scores = jnp.where(seen, jnp.einsum("tkgd,tkbd->tkgb", grouped, keys), -jnp.inf)
        new_top = jnp.maximum(top, scores.max(-1))
        safe = jnp.where(jnp.isneginf(new_top), 0.0, new_top)  # nothing seen yet
        shrink, weights = jnp.exp(top - safe), jnp.exp(scores - safe[..., None])
        if mask_values:
            values = jnp.where(seen[:, :, 0, :, None], values, 0.0)
        out = out * shrink[..., None] + jnp.einsum("tkgb,tkbd->tkgd", weights, values)
        return out, new_top, total * shrink + weights.sum(-1)

    rows = grouped.shape[:3]
    start = (jnp.zeros(grouped.shape), jnp.full(rows, -jnp.inf), jnp.zeros(rows))
    blocks = -(-context_lens.max() // block_size)
    out, _, total = jax.lax.fori_loop(0, blocks, add_block, start)
    out = out / jnp.where(total == 0, 1.0, total)[..., None]
    return jnp.where(real[:, None, None], out.reshape(q.shape), 0.0).astype(q.dtype)


def first_try(
    q: jax.Array,
    kv_cache: jax.Array,
    block_tables: jax.Array,
    context_lens: jax.Array,
    query_start_loc: jax.Array,
    *,
    layer: jax.Array,
    scale: float,
) -> jax.Array:
    """Scores are masked: is that not enough?"""
    batch = (q, kv_cache, block_tables, context_lens, query_start_loc)
    return walk(*batch, layer=layer, scale=scale, mask_values=False)


def paged_attention(
    q: jax.Array,
    kv_cache: jax.Array,
    block_tables: jax.Array,
    context_lens: jax.Array,
    query_start_loc: jax.Array,
    *,
    layer: jax.Array,
    scale: float,
) -> jax.Array:
    """Values out of sight are zeroed, too."""
    batch = (q, kv_cache, block_tables, context_lens, query_start_loc)
    return walk(*batch, layer=layer, scale=scale, mask_values=True)
