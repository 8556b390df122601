"""Checks the arguments of `paged_attention`, with errors in the caller's own terms."""

import jax.numpy as jnp
from jaxtyping import Array

from pallas_kernels.call import Call, Options

# Element types of a quantised cache: its numbers are multiplied by a scale.
QUANTIZED = ("float8_e4m3fn", "int8")


def check_call(call: Call, options: Options) -> None:
    """Checks that arrays and options match.

    Raises:
        ValueError: they do not; the message has the shapes or values.
    """
    _check_tensors(call)
    _check_batch(call)
    _check_per_head(call)
    if options.window is not None and options.window < 1:
        raise ValueError(f"window={options.window} must be at least 1, or None to see everything")
    if options.soft_cap is not None and options.soft_cap <= 0:
        raise ValueError(f"soft_cap={options.soft_cap} must be positive, or None for no bound")


def check_cache(kv_cache: Array) -> None:
    """Checks that an array is a cache of keys and values, or of keys that begin with their values.

    Raises:
        ValueError: it is not; the message has its shape.
    """
    if kv_cache.ndim != 6 or kv_cache.shape[1] not in (1, 2):
        raise ValueError(
            f"expected a cache [L, 2, N, K, B, D], or [L, 1, N, K, B, D]: {kv_cache.shape=}"
        )


def check_step(
    block_tables: Array, context_lens: Array, query_start_loc: Array, num_tokens: int
) -> None:
    """Checks that the shapes of a step match and that the step has tokens.

    Raises:
        ValueError: they do not, or it has none; the message has the shapes.
    """
    if context_lens.ndim != 1 or context_lens.shape[0] == 0:
        raise ValueError(f"expected at least one sequence: {context_lens.shape=}")
    num_seqs = context_lens.shape[0]
    if block_tables.ndim != 2 or block_tables.shape[0] != num_seqs or block_tables.shape[1] == 0:
        raise ValueError(f"expected [S, W] for [S]: {block_tables.shape=} {context_lens.shape=}")
    if query_start_loc.shape != (num_seqs + 1,):
        raise ValueError(f"expected [S+1] for [S]: {query_start_loc.shape=} {context_lens.shape=}")
    if num_tokens < 1:
        raise ValueError(f"a step has tokens: {num_tokens=} {context_lens.shape=}")


def check_scales(kv_cache: Array, kv_scales: Array | None) -> None:
    """Checks that a quantised cache, and no other, has a scale for each layer, K or V, and KV head.

    Raises:
        ValueError: it does not; the message has the shapes or the dtype.
    """
    quantized = kv_cache.dtype.name in QUANTIZED
    if quantized != (kv_scales is not None):
        raise ValueError(
            f"kv_scales belong to a cache of {' or '.join(QUANTIZED)} and to no other: "
            f"{kv_cache.dtype=} kv_scales {'is None' if kv_scales is None else 'are given'}"
        )
    if kv_scales is not None:
        layers, kv, _, heads, _, _ = kv_cache.shape
        if kv_scales.shape != (layers, kv, heads):
            raise ValueError(f"expected scales [L, {kv}, K]: {kv_scales.shape=} {kv_cache.shape=}")


def _check_tensors(call: Call) -> None:
    q, kv_cache = call.q, call.kv_cache
    if q.ndim != 3 or 0 in q.shape:
        raise ValueError(f"expected queries [T, H, D], none of them 0: {q.shape=}")
    check_cache(kv_cache)
    if 0 in kv_cache.shape:
        raise ValueError(f"expected a cache, none of its axes 0: {kv_cache.shape=}")
    if q.shape[2] != kv_cache.shape[5]:
        raise ValueError(f"head dimensions differ: {q.shape=} {kv_cache.shape=}")
    if q.shape[1] % kv_cache.shape[3]:
        raise ValueError(
            f"the number of query heads H must be a multiple of the KV heads K: {q.shape=} "
            f"{kv_cache.shape=}"
        )
    check_scales(kv_cache, call.kv_scales)


def _check_batch(call: Call) -> None:
    check_step(call.block_tables, call.context_lens, call.query_start_loc, call.q.shape[0])
    if call.prompt_lens is not None and call.prompt_lens.shape != call.context_lens.shape:
        raise ValueError(
            f"expected [S] for [S]: {call.prompt_lens.shape=} {call.context_lens.shape=}"
        )
    for name in ("block_tables", "context_lens", "query_start_loc", "prompt_lens"):
        array = getattr(call, name)
        if array is None:
            continue
        dtype = array.dtype
        if not jnp.issubdtype(dtype, jnp.integer):
            raise ValueError(f"{name} must hold integers, not {dtype}")


def _check_per_head(call: Call) -> None:
    q, alibi_slopes, sinks = call.q, call.alibi_slopes, call.sinks
    if alibi_slopes is not None and alibi_slopes.shape != (q.shape[1],):
        raise ValueError(f"expected one slope a query head: {alibi_slopes.shape=} {q.shape=}")
    if sinks is not None and sinks.shape != (q.shape[1],):
        raise ValueError(f"expected one sink a query head: {sinks.shape=} {q.shape=}")
