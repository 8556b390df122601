"""Attention of a ragged batch: decode rows and prefill tiles."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array

from pallas_kernels.call import Call, Options
from pallas_kernels.device import target_device
from pallas_kernels.xla.blocks import Partial
from pallas_kernels.xla.decode import attend_rows
from pallas_kernels.xla.metadata import XlaMetadata
from pallas_kernels.xla.metadata import make_metadata as make_metadata
from pallas_kernels.xla.prefill import attend_tiles


def missing(call: Call, options: Options) -> str | None:
    """None: this backend supports every call on every device."""
    return None


@partial(jax.jit, static_argnames="options")
def attend(call: Call, options: Options, metadata: XlaMetadata) -> Partial:
    """`paged_attention` on checked arguments.

    On a CPU the order of a query's sums depends on its position, if the call says where prompts
    end. Elsewhere small loops would cost more than they do here.
    """
    if call.prompt_lens is not None and str(target_device().platform) == "cpu":
        batch = call.context_lens, call.query_start_loc, len(call.q)
        metadata = make_metadata(*batch, decode_only=False, prompt_lens=call.prompt_lens)
    lse = jnp.full(call.q.shape[:2], -jnp.inf) if options.return_lse else None
    rest: Partial = (jnp.zeros_like(call.q), lse)
    if not metadata.decode_only:
        rest = attend_tiles(call, options, metadata)
    row = metadata.token_row

    def select(rows: Array, rest: Array) -> Array:
        is_row = (row >= 0).reshape(-1, *(1,) * (rest.ndim - 1))
        return jnp.where(is_row, rows.astype(rest.dtype)[jnp.maximum(row, 0)], rest)

    result: Partial = jax.tree.map(select, attend_rows(call, options, metadata), rest)
    return result
