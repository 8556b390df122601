"""The arrays of a call that the kernels read, and its static sizes and options."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from pallas_kernels.call import Call, Options


class Operands(NamedTuple):
    """A call's arrays; inside a kernel, references to them."""

    q: Float[Array, "T H D"]
    # One row is one block of one head: (((layer * 2 + k or v) * N + block) * K + head).
    pages: Shaped[Array, "L*2*N*K B D"]
    block_tables: Int[Array, "S W"]
    layer: Int[Array, " 1"]
    alibi_slopes: Float[Array, " H"] | None
    sinks: Float[Array, " H"] | None
    kv_scales: Float[Array, "L kv K"] | None


class Geometry(NamedTuple):
    """The sizes and options that a kernel is compiled for."""

    num_blocks: int
    kv_heads: int
    group: int
    block_size: int
    dim: int
    compute_dtype: Any
    options: Options


def operands(call: Call) -> Operands:
    """A call's arrays in the kernels' shapes; the cache is not copied."""
    layers, _, num_blocks, heads, block_size, dim = call.kv_cache.shape
    return Operands(
        call.q,
        call.kv_cache.reshape(layers * 2 * num_blocks * heads, block_size, dim),
        call.block_tables.astype(jnp.int32),
        jnp.reshape(call.layer, 1).astype(jnp.int32),
        _float32(call.alibi_slopes),
        _float32(call.sinks),
        _float32(call.kv_scales),
    )


def geometry(call: Call, options: Options) -> Geometry:
    """The static sizes and options of a call."""
    _, _, num_blocks, kv_heads, block_size, dim = call.kv_cache.shape
    group = call.q.shape[1] // kv_heads
    return Geometry(num_blocks, kv_heads, group, block_size, dim, compute_dtype(call), options)


def compute_dtype(call: Call) -> Any:
    """Element type of the operands of matrix products; sums are float32.

    Quantised numbers are exact in each of float32, bfloat16 and float16. So products use them as
    stored, and the scale is applied to the product.
    """
    if call.kv_cache.dtype.itemsize == 1:
        return call.q.dtype
    return jnp.promote_types(call.q.dtype, call.kv_cache.dtype)


def _float32(array: Array | None) -> Array | None:
    return None if array is None else array.astype(jnp.float32)
