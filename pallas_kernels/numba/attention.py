"""The backend for CPUs: calls the compiled kernel of `cpu_kernels`."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cpu_kernels.attention.paged_attention import attention
from cpu_kernels.simd.widen import DTYPES
from pallas_kernels.call import Call, Options
from pallas_kernels.xla.blocks import scale_heads

Result = tuple[Float[Array, "T H D"], Float[Array, "T H"] | None]


def missing(call: Call, options: Options) -> str | None:
    """The feature of a call that this backend lacks, or None."""
    del options
    for array in (call.q, call.kv_cache):
        if array.dtype.name not in DTYPES:
            return f"{array.dtype}"
    return None


def make_metadata(
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    num_tokens: int,
    *,
    decode_only: bool,
) -> None:
    """Returns nothing: each call plans its own work, which takes a microsecond."""
    del context_lens, query_start_loc, num_tokens, decode_only


@partial(jax.jit, static_argnames="options")
def attend(call: Call, options: Options, metadata: None) -> Result:
    """Computes `paged_attention` on checked arguments."""
    del metadata
    alibi_slopes = jnp.zeros(0) if call.alibi_slopes is None else call.alibi_slopes
    out, top, denominator = attention(
        scale_heads(call.q.astype(jnp.float32), call, 0),
        call.kv_cache,
        call.block_tables.astype(jnp.int32),
        call.context_lens.astype(jnp.int32),
        call.query_start_loc.astype(jnp.int32),
        call.layer,
        alibi_slopes.astype(jnp.float32),
        scale=options.scale,
        window=(options.window or 0) if call.window is None else call.window,
        soft_cap=options.soft_cap or 0.0,
    )
    if call.sinks is not None:
        out, top, denominator = _add_sinks(out, top, denominator, call.sinks.astype(jnp.float32))
    out = scale_heads(out, call, 1).astype(call.q.dtype)
    if not options.return_lse:
        return out, None
    empty = denominator == 0
    return out, jnp.where(empty, -jnp.inf, top + jnp.log(jnp.where(empty, 1.0, denominator)))


def _add_sinks(
    out: Float[Array, "T H D"],
    top: Float[Array, "T H"],
    denominator: Float[Array, "T H"],
    sinks: Float[Array, " H"],
) -> tuple[Float[Array, "T H D"], Float[Array, "T H"], Float[Array, "T H"]]:
    """Adds a sink to each head's softmax. A token that attends to nothing gets none."""
    new_top = jnp.maximum(top, sinks)
    kept = denominator * jnp.exp(top - new_top)
    total = jnp.where(denominator == 0, 0.0, kept + jnp.exp(sinks - new_top))
    share = kept / jnp.where(total == 0, 1.0, total)
    return out * share[..., None], new_top, total
