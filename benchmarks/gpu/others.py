"""Other attention in JAX on the same shapes: its deprecated paged kernel, and cuDNN's."""

import math
import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.gpu.ours import ROTATED, make_inputs
from benchmarks.gpu.shapes import Shape
from benchmarks.gpu.timing import iterations, seconds_each


def time_jax_paged(shape: Shape, predicted_s: float, smoke: bool) -> float:
    """Microseconds of `jax.experimental.pallas.ops.gpu.paged_attention`, decode only.

    Raises:
        ImportError: this JAX has it no more.
        NotImplementedError: it cannot do this shape.
    """
    if not shape.decode_only or shape.cache_dtype != shape.dtype:
        raise NotImplementedError("decode from an unquantised cache only")
    from jax.experimental.pallas.ops.gpu.paged_attention import paged_attention

    warnings.simplefilter("ignore", DeprecationWarning)
    inputs = make_inputs(shape, smoke)
    splits = math.gcd(16, inputs.block_tables.shape[1])  # it wants a divisor; 16 is its default
    # Heads before pages; and arrays of their own, so that none is copied out of a stack.
    pages = [jnp.swapaxes(layer, 1, 2) for layer in inputs.kv_cache]
    pages = [(keys, values) for keys, values in pages]

    @partial(jax.jit, static_argnums=2)
    def loop(q: Any, pages: Any, count: int) -> Any:
        for i in range(count):
            keys, values = pages[i % len(pages)]
            q = paged_attention(
                q * shape.dim**-0.5, keys, values, inputs.block_tables, inputs.context_lens,
                k_splits=splits, interpret=smoke,
            ).astype(q.dtype)  # fmt: skip
        return q

    few, many = iterations(predicted_s, smoke)
    few, many = min(few, 4), min(many, 16)
    run = partial(loop, inputs.q, pages)
    return seconds_each(lambda n: partial(run, n), few=few, many=many, rounds=5) * 1e6


def time_contiguous(shape: Shape, predicted_s: float, smoke: bool) -> float:
    """Microseconds of `jax.nn.dot_product_attention` on keys and values that lie in one piece.

    Raises:
        NotImplementedError: sequences of different lengths, or a quantised cache.
    """
    if len(set(shape.sequences)) > 1 or shape.cache_dtype != shape.dtype:
        raise NotImplementedError("sequences of one length and an unquantised cache only")
    new, old = shape.sequences[0]
    if old and new > 1:
        raise NotImplementedError("a prefill from position 0 only")
    batch, total = len(shape.sequences), new + old
    layers = 2 if smoke else max(2, min(32, ROTATED // shape.layer_bytes))
    key = jax.random.key(0)
    kv_shape = (2, batch, total, shape.kv_heads, shape.dim)
    kv = [jax.random.normal(key, kv_shape, jnp.dtype(shape.dtype)) for _ in range(layers)]
    kv = [(keys, values) for keys, values in kv]
    q = jax.random.normal(key, (batch, new, shape.heads, shape.dim), jnp.dtype(shape.dtype))
    implementation = None if smoke else "cudnn"

    @partial(jax.jit, static_argnums=2)
    def loop(q: Any, kv: Any, count: int) -> Any:
        for i in range(count):
            keys, values = kv[i % layers]
            q = jax.nn.dot_product_attention(
                q, keys, values, is_causal=new > 1, implementation=implementation
            )
        return q

    few, many = iterations(predicted_s, smoke)
    few, many = min(few, 4), min(many, 16)
    return seconds_each(lambda n: partial(loop, q, kv, n), few=few, many=many, rounds=5) * 1e6
