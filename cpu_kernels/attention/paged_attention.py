"""Paged attention of a ragged batch on a CPU: decodes, chunks of prompts, or any mixture."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from cpu_kernels.attention.decode import attend_decode, decode_floats
from cpu_kernels.attention.plan import clear_unseeing, find_item, make_plan
from cpu_kernels.attention.prefill import attend_tile, prefill_floats
from cpu_kernels.attention.work import WORK_BYTES, find_work, read_work
from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.memory import free

NAME = "cpu_kernels.paged_attention"


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


@inner
def _items(call: Any) -> int:
    """Fills in the call's record and plans its work."""
    work = read_work(call)
    clear_unseeing(work)
    return make_plan(work)


@inner
def _scratch(call: Any) -> int:
    work = find_work(call)
    return 4 * max(decode_floats(work), prefill_floats(work))


@inner
def _free_plan(call: Any) -> None:
    free(find_work(call).plan)


@cpu_kernel(
    NAME,
    operands="q kv_cache block_tables context_lens query_start_loc prompt_lens layer scale "
    "soft_cap window alibi_slopes sinks",
    results="out top denominator work",
    items=_items,
    scratch=_scratch,
    finish=_free_plan,
)
@inner
def attend(call: Any, number: int, scratch: int) -> None:
    """One item of one call."""
    work = find_work(call)
    item = find_item(work, number)
    if item.is_decode:
        attend_decode(work, item, scratch)
    else:
        attend_tile(work, item, scratch)
