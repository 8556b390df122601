"""The plain way: gather all blocks of each sequence, mask the scores, softmax.

    paged-conformance kernel paged_conformance.adapters.jax_gather_kernel:paged_attention

Written as it usually is. It shows what the property suite finds in such code, and what a function
with our signature needs: nothing. Options that are not in the signature are skipped.
"""

import jax
import jax.numpy as jnp


def paged_attention(
    q: jax.Array,
    kv_cache: jax.Array,
    block_tables: jax.Array,
    context_lens: jax.Array,
    query_start_loc: jax.Array,
    *,
    layer: jax.Array,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    alibi_slopes: jax.Array | None = None,
) -> jax.Array:
    """Reads as much as the block tables have room for, whatever the lengths are."""
    token = jnp.arange(q.shape[0])
    seq = jnp.searchsorted(query_start_loc, token, side="right") - 1
    seq = jnp.minimum(seq, len(context_lens) - 1)
    position = context_lens[seq] - query_start_loc[seq + 1] + token

    # [S, W, K, B, D] to [S, K, W * B, D]
    pages = (jnp.moveaxis(kv_cache[layer, which][block_tables], 2, 1) for which in (0, 1))
    keys, values = (x.reshape(*x.shape[:2], -1, x.shape[-1])[seq] for x in pages)
    grouped = q.reshape(len(q), keys.shape[1], -1, q.shape[2])
    scores = jnp.einsum("tkgd,tknd->tkgn", grouped, keys, preferred_element_type=jnp.float32)
    scores = scores * scale
    if soft_cap is not None:
        scores = soft_cap * jnp.tanh(scores / soft_cap)
    distance = jnp.arange(keys.shape[2]) - position[:, None]
    if alibi_slopes is not None:
        slopes = alibi_slopes.reshape(1, keys.shape[1], -1, 1)
        scores = scores + slopes * distance[:, None, None]
    mask = distance <= 0
    if window is not None:
        mask &= distance > -window
    weights = jax.nn.softmax(jnp.where(mask[:, None, None], scores, -jnp.inf), axis=-1)
    out = jnp.einsum("tkgn,tknd->tkgd", weights.astype(values.dtype), values)
    return jnp.where((token < query_start_loc[-1])[:, None, None], out.reshape(q.shape), 0)
