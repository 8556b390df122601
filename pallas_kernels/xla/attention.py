"""The whole ragged batch: decode rows and prefill tiles, put together."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.metadata import AttentionMetadata
from pallas_kernels.xla.blocks import Context, Options
from pallas_kernels.xla.decode import attend_rows
from pallas_kernels.xla.prefill import attend_tiles


@partial(jax.jit, static_argnames="options")
def attend(
    q: Float[Array, "T H D"],
    kv_cache: Float[Array, "L 2 N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    layer: Int[Array, ""],
    slopes: Float[Array, " H"] | None,
    metadata: AttentionMetadata,
    options: Options,
) -> Float[Array, "T H D"]:
    """`paged_attention` on arguments that were checked."""
    context = Context(kv_cache, block_tables, layer, slopes, options)
    if metadata.decode_only:
        rest = jnp.zeros_like(q)
    else:
        rest = attend_tiles(q, context, context_lens, query_start_loc, metadata)
    rows = attend_rows(q, context, metadata).astype(q.dtype)
    row = metadata.token_row
    return jnp.where((row >= 0)[:, None, None], rows[jnp.maximum(row, 0)], rest)
