"""FlashAttention 3 on pages, from the package `flash-attn3-jax`: vLLM's kernel on Hopper.

It is timed by the same loop, in the same process and on the same shapes as ours. Its pages hold
[tokens, heads, head dim], ours [heads, tokens, head dim]; it needs a head dim of 128.
"""

import importlib.util
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.gpu.ours import Inputs, exact_result, make_inputs
from benchmarks.gpu.shapes import Shape
from benchmarks.gpu.timing import iterations, seconds_each

METHOD = "FlashAttention 3, paged"
PAGE = 64  # tokens; it is slow in smaller pages
LONG, SPLITS = 1024, 8  # contexts of one sequence that are worth splitting


def available() -> bool:
    return importlib.util.find_spec("flash_attn3_jax") is not None


def time_shape(shape: Shape, predicted_s: float) -> float:
    """Microseconds of one layer on the device.

    Raises:
        NotImplementedError: it cannot do this shape.
    """
    if shape.dim != 128 or shape.cache_dtype != "bfloat16" or len(set(shape.sequences)) > 1:
        raise NotImplementedError("head dim 128, bfloat16, sequences of one length only")
    inputs = make_inputs(replace(shape, block_size=PAGE), smoke=False)
    layers = inputs.kv_cache.shape[0]
    count = iterations(predicted_s * layers, smoke=False)
    pages = [tuple(jnp.swapaxes(part, 1, 2) for part in layer) for layer in inputs.kv_cache]

    @jax.jit
    def loop(q: Any, pages: Any) -> Any:
        # Two layers a turn, each an array of its own, so that none is copied out of a stack.
        def turn(i: Any, q: Any) -> Any:
            for keys, values in pages:
                q = attend(shape, inputs, q, keys, values)
            return q

        return lax.fori_loop(0, count, turn, q)

    new, _ = shape.sequences[0]
    q = inputs.q.reshape(len(shape.sequences), new, shape.heads, shape.dim)
    return 1e6 / layers * seconds_each(partial(loop, q, pages), count, rounds=7)


def largest_error(shape: Shape) -> float:
    """Largest difference to the XLA twin in float32, over the largest magnitude of that."""
    shape = replace(shape, block_size=PAGE)
    inputs = make_inputs(shape, smoke=False)
    keys, values = (jnp.swapaxes(part, 1, 2) for part in inputs.kv_cache[1])
    q = inputs.q.reshape(len(shape.sequences), -1, shape.heads, shape.dim)
    mine = jax.jit(partial(attend, shape))(inputs, q, keys, values)
    exact = exact_result(shape, smoke=False)
    return float(jnp.abs(mine.reshape(exact.shape) - exact).max() / jnp.abs(exact).max())


def attend(shape: Shape, inputs: Inputs, q: Any, keys: Any, values: Any) -> Any:
    """One layer's attention of queries [sequences, new tokens, heads, head dim]."""
    from flash_attn3_jax import flash_mha_with_kvcache

    few = len(shape.sequences) * shape.kv_heads < 128 and shape.decode_only
    return flash_mha_with_kvcache(
        q,
        keys,
        values,
        cache_seqlens=inputs.context_lens,
        page_table=inputs.block_tables,
        softmax_scale=shape.dim**-0.5,
        is_causal=True,
        num_splits=SPLITS if few and max(shape.contexts) >= LONG else 1,
    )
