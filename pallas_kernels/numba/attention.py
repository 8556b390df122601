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
    alibi_slopes, sinks = (
        jnp.zeros(0) if one is None else one for one in (call.alibi_slopes, call.sinks)
    )
    out, top, denominator = attention(
        scale_heads(call.q.astype(jnp.float32), call, 0),
        call.kv_cache,
        call.block_tables.astype(jnp.int32),
        call.context_lens.astype(jnp.int32),
        call.query_start_loc.astype(jnp.int32),
        _prompt_lens(call).astype(jnp.int32),
        call.layer,
        alibi_slopes.astype(jnp.float32),
        sinks.astype(jnp.float32),
        scale=options.scale,
        window=(options.window or 0) if call.window is None else call.window,
        soft_cap=options.soft_cap or 0.0,
    )
    out = scale_heads(out, call, 1).astype(call.q.dtype)
    if not options.return_lse:
        return out, None
    empty = denominator == 0
    return out, jnp.where(empty, -jnp.inf, top + jnp.log(jnp.where(empty, 1.0, denominator)))


def _prompt_lens(call: Call) -> Int[Array, " S"]:
    """Where decodes begin; unless the call says it, a sequence with one query is one."""
    if call.prompt_lens is not None:
        return call.prompt_lens
    return jnp.where(jnp.diff(call.query_start_loc) == 1, 0, call.context_lens)
