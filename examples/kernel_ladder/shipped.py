"""Rung 7: the kernel that ships, which is what the engine calls."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels import make_metadata, paged_attention


def shipped(
    q: Float[Array, "S H D"],
    kv_cache: Float[Array, "2 N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    *,
    scale: float,
) -> Float[Array, "S H D"]:
    """Rung 7: any mixture of decodes and prefill chunks, with the backend that the device has."""
    query_start_loc = jnp.arange(len(q) + 1, dtype=jnp.int32)
    cache = kv_cache[None]
    metadata = make_metadata(
        block_tables, context_lens, query_start_loc, len(q), decode_only=True, call=(q, cache)
    )
    result = paged_attention(
        q,
        cache,
        block_tables,
        context_lens,
        query_start_loc,
        layer=0,
        scale=scale,
        metadata=metadata,
    )
    assert isinstance(result, Array)
    return result
