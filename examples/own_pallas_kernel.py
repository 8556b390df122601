"""A paged attention of your own, in Pallas: the second that docs/tutorial/add-a-kernel.md builds.

    python -m pytest tests/kernels --kernel examples.own_pallas_kernel:paged_attention

It runs in Pallas's interpreter. docs/tutorial/triton-line-by-line.md has what a GPU wants besides.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from examples.own_kernel import owners


def attend_token(
    seq_ref: Any,  # [T], the sequence of each token
    sees_ref: Any,  # [T], how many positions it sees: 0 for padding
    tables_ref: Any,  # [S, W]
    layer_ref: Any,  # [1]
    q_ref: Any,  # [G, D], one token's queries for one KV head
    cache_ref: Any,  # [L, 2, N, K, B, D]
    out_ref: Any,  # [G, D]
    *,
    scale: float,
) -> None:
    """The kernel: one token and one KV head, block by block, with online softmax."""
    t, head = pl.program_id(0), pl.program_id(1)
    seq, sees, layer = seq_ref[t], sees_ref[t], layer_ref[0]
    size = cache_ref.shape[4]
    queries = q_ref[...].astype(jnp.float32) * scale

    def add_block(j: Any, state: Any) -> Any:
        top, total, out = state
        block = tables_ref[seq, j]
        keys = cache_ref[layer, 0, block, head].astype(jnp.float32)  # [B, D]
        values = cache_ref[layer, 1, block, head].astype(jnp.float32)
        seen = j * size + jnp.arange(size) < sees
        scores = jnp.where(seen[None], queries @ keys.T, -jnp.inf)  # [G, B]
        values = jnp.where(seen[:, None], values, 0.0)
        new = jnp.maximum(top, scores.max(1))
        shrink, weights = jnp.exp(top - new), jnp.exp(scores - new[:, None])
        return new, total * shrink + weights.sum(1), out * shrink[:, None] + weights @ values

    rows, dim = queries.shape
    start = (jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros((rows, dim)))
    _, total, out = jax.lax.fori_loop(0, pl.cdiv(sees, size), add_block, start)
    out = out / jnp.where(total == 0, 1.0, total)[:, None]  # padding sees nothing: zeros
    out_ref[...] = out.astype(out_ref.dtype)


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
    """Says which program sees what, and runs the kernel for each token and KV head."""
    tokens, heads, dim = q.shape
    kv_heads = kv_cache.shape[3]
    seq, position, real = owners(tokens, context_lens, query_start_loc)
    whole = pl.BlockSpec(memory_space=pl.ANY)
    group = pl.BlockSpec((None, None, heads // kv_heads, dim), lambda t, head: (t, head, 0, 0))
    grouped = q.reshape(tokens, kv_heads, -1, dim)
    shape: Any = jax.ShapeDtypeStruct(grouped.shape, q.dtype)
    out = pl.pallas_call(
        partial(attend_token, scale=scale),
        grid=(tokens, kv_heads),
        in_specs=[whole, whole, whole, whole, group, whole],
        out_specs=group,
        out_shape=shape,
        interpret=True,
    )(seq, jnp.where(real, position + 1, 0), block_tables, layer[None], grouped, kv_cache)
    return out.reshape(q.shape)
