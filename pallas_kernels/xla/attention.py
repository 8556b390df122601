"""The whole ragged batch: decode rows and prefill tiles, put together."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pallas_kernels.call import Call, Options
from pallas_kernels.xla.decode import attend_rows
from pallas_kernels.xla.metadata import XlaMetadata
from pallas_kernels.xla.metadata import make_metadata as make_metadata
from pallas_kernels.xla.prefill import attend_tiles


def missing(call: Call, options: Options) -> str | None:
    """What of a call does not exist here, or None."""
    for name, asked in (("sinks", call.sinks), ("kv_scales", call.kv_scales)):
        if asked is not None:
            return name
    return "return_lse" if options.return_lse else None


@partial(jax.jit, static_argnames="options")
def attend(
    call: Call, options: Options, metadata: XlaMetadata
) -> tuple[Float[Array, "T H D"], Float[Array, "T H"] | None]:
    """`paged_attention` on arguments that were checked."""
    rest = jnp.zeros_like(call.q)
    if not metadata.decode_only:
        rest = attend_tiles(call, options, metadata)
    rows = attend_rows(call, options, metadata).astype(call.q.dtype)
    row = metadata.token_row
    return jnp.where((row >= 0)[:, None, None], rows[jnp.maximum(row, 0)], rest), None
