"""One shape of `pallas_kernels.paged_attention`, timed; the layers of a cache larger than L2."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import pallas_kernels as pk
from benchmarks.gpu.shapes import Shape
from benchmarks.gpu.timing import iterations, seconds_each
from pallas_kernels.backends import BACKENDS, choose_backend
from pallas_kernels.metadata import MetadataError

ROTATED = 2**28  # bytes that are read before the same ones are read again: several times L2


class Inputs(NamedTuple):
    """Arrays of a step; the scales are there for a cache of 8 bits."""

    q: Any
    kv_cache: Any
    block_tables: Any
    context_lens: Any
    query_start_loc: Any
    kv_scales: Any


def available_backends(smoke: bool) -> list[str]:
    """The backends that this device has; on a CPU, in a smoke run, also by interpretation."""
    found = []
    for name in BACKENDS:
        try:
            choose_backend(name if smoke else (name,))
        except ValueError:
            continue
        found.append(name)
    return found


def supports(shape: Shape, backend: str, smoke: bool) -> bool:
    """Whether a backend can do a shape here; nothing is computed."""
    try:
        jax.eval_shape(lambda: attend(shape, backend, make_inputs(shape, smoke), 1))
    except MetadataError:
        return False
    return True


def make_inputs(shape: Shape, smoke: bool) -> Inputs:
    """Random keys and values in blocks in random order, or in order."""
    layers = 2 if smoke else max(2, min(64, -(-ROTATED // shape.layer_bytes)))
    pool = (layers, 2, shape.num_blocks + 1, shape.kv_heads, shape.block_size, shape.dim)
    cache = _random(pool, shape.cache_dtype)
    order = np.arange(shape.num_blocks, dtype=np.int32)
    if shape.paged:
        order = np.random.default_rng(0).permutation(order)
    counts = [-(-length // shape.block_size) for length in shape.contexts]
    tables = np.zeros((len(counts), max(counts)), np.int32)
    for row, (start, count) in enumerate(zip(np.cumsum([0, *counts]), counts, strict=False)):
        tables[row, :count] = order[start : start + count]
    starts = np.cumsum([0, *(new for new, _ in shape.sequences)])
    scales = None
    if shape.cache_dtype in ("int8", "float8_e4m3fn"):
        scales = jnp.full((layers, 2, shape.kv_heads), 1 / 32, jnp.float32)
    q = _random((shape.num_tokens, shape.heads, shape.dim), shape.dtype)
    lens = jnp.asarray(shape.contexts, jnp.int32)
    return Inputs(q, cache, jnp.asarray(tables), lens, jnp.asarray(starts, jnp.int32), scales)


@partial(jax.jit, static_argnums=(0, 1))
def _random(shape: tuple[int, ...], dtype: str) -> Any:
    if dtype == "int8":
        return jax.random.randint(jax.random.key(0), shape, -64, 64, jnp.int8)
    return jax.random.normal(jax.random.key(0), shape, jnp.bfloat16).astype(dtype)


def attend(shape: Shape, backend: str | None, inputs: Inputs, layer: Any) -> Any:
    """One layer's attention."""
    q, cache, tables, lens, starts, scales = inputs
    metadata = pk.make_metadata(
        tables, lens, starts, q.shape[0], decode_only=shape.decode_only, backend=backend
    )
    return pk.paged_attention(
        q,
        cache,
        tables,
        lens,
        starts,
        layer=layer,
        scale=shape.dim**-0.5,
        kv_scales=scales,
        backend=backend,
        metadata=metadata,
    )


def time_shape(shape: Shape, backend: str | None, predicted_s: float, smoke: bool) -> float:
    """Microseconds of one layer on the device."""
    inputs, count = make_inputs(shape, smoke), iterations(predicted_s, smoke)

    @jax.jit
    def loop(inputs: Inputs) -> Any:
        # The result is the next query, so that no iteration starts before the last has ended.
        def step(i: Any, q: Any) -> Any:
            layer = i % inputs.kv_cache.shape[0]
            return attend(shape, backend, inputs._replace(q=q), layer)

        return lax.fori_loop(0, count, step, inputs.q)

    return 1e6 * seconds_each(partial(loop, inputs), count, rounds=1 if smoke else 7)


_attend = jax.jit(attend, static_argnums=(0, 1))


def exact_result(shape: Shape, smoke: bool) -> jax.Array:
    """The XLA twin's result in float32."""
    inputs = make_inputs(shape, smoke)
    with jax.default_matmul_precision("highest"):  # a GPU would round float32 to TF32
        exact: jax.Array = _attend(shape, "xla", inputs._replace(q=inputs.q.astype("float32")), 1)
    return exact


def largest_error(shape: Shape, backend: str, exact: jax.Array, smoke: bool) -> float:
    """Largest difference to the exact result, over the largest magnitude of that."""
    mine = _attend(shape, backend, make_inputs(shape, smoke), 1).astype(jnp.float32)
    return float(jnp.abs(mine - exact).max() / jnp.abs(exact).max())
