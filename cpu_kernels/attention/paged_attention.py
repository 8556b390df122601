"""Paged attention of a ragged batch on a CPU: decodes, chunks of prompts, or any mixture."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from cpu_kernels.attention.attention_kernel import NAME
from cpu_kernels.attention.work import WORK_BYTES


def attention(
    q: Float[Array, "T H D"],
    kv_cache: Shaped[Array, "L kv N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    prompt_lens: Int[Array, " S"],
    layer: Int[Array, ""],
    alibi_slopes: Float[Array, " slopes"],
    sinks: Float[Array, " sinks"],
    *,
    scale: float,
    window: int | Int[Array, ""],
    soft_cap: float,
) -> tuple[Float[Array, "T H D"], Float[Array, "T H"], Float[Array, "T H"]]:
    """Causal attention of a ragged batch over its paged context; see `pallas_kernels`.

    Args:
        q: float32. The integer arrays are int32.
        kv_cache: one of `widen.DTYPES`.
        prompt_lens: where prompts end and decodes begin; see `plan.py`.
        alibi_slopes: ALiBi slope of each head, float32; empty for none.
        sinks: a logit of each head that takes part in its softmax, float32; empty for none.
        scale: factor of q.k.
        window: tokens that a query sees, including its own; 0 for all.
        soft_cap: bound on the magnitude of scores; 0 for none.

    Returns:
        The result, each softmax's largest score, and each softmax's sum of exp(score - largest).
        A token without context gets zeros, -1e30 and 0.
    """
    rows = jax.ShapeDtypeStruct(q.shape[:2], jnp.float32)
    results = (
        jax.ShapeDtypeStruct(q.shape, jnp.float32),
        rows,
        rows,
        jax.ShapeDtypeStruct((WORK_BYTES,), jnp.uint8),
    )
    sequences = (block_tables, context_lens, query_start_loc, prompt_lens)
    call = jax.ffi.ffi_call(NAME, results)
    out, top, denominator, _ = call(
        q,
        kv_cache,
        *sequences,
        layer,
        jnp.float32(scale),
        jnp.float32(soft_cap),
        jnp.asarray(window, jnp.int32),
        alibi_slopes,
        sinks,
    )
    return out, top, denominator
