"""Reads and writes whole blocks of a KV cache, for copy-on-write and swapping.

A block is one piece of memory for each layer, keys and values. XLA would do the same for most
dtypes. But it has no gather and no scatter of 8-bit floats on a CPU: it would convert the whole
cache to float16 and back.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.memory import copy
from cpu_kernels.simd.widen import item_bytes

READ, WRITE = "cpu_kernels.block_read", "cpu_kernels.block_write"


def read_blocks(
    kv_cache: Shaped[Array, "L kv N K B D"], ids: Int[Array, " M"]
) -> Shaped[Array, "M L kv K B D"]:
    """The contents of blocks; those of the nearest block for an id outside of the cache.

    Args:
        kv_cache: one of `widen.DTYPES`.
    """
    layers, kv, _, *block = kv_cache.shape
    result = jax.ShapeDtypeStruct((*ids.shape, layers, kv, *block), kv_cache.dtype)
    read: Array = jax.ffi.ffi_call(READ, result)(kv_cache, ids.astype(jnp.int32))
    return read


def write_blocks(
    kv_cache: Shaped[Array, "L kv N K B D"],
    ids: Int[Array, " M"],
    data: Shaped[Array, "M L kv K B D"],
) -> Shaped[Array, "L kv N K B D"]:
    """The cache with data[i] in block ids[i], in place where XLA allows it.

    Nothing is written for an id outside of the cache.
    """
    result = jax.ShapeDtypeStruct(kv_cache.shape, kv_cache.dtype)
    call = jax.ffi.ffi_call(WRITE, result, input_output_aliases={0: 0})
    written: Array = call(kv_cache, ids.astype(jnp.int32), data)
    return written


@inner
def _places(call: Any) -> int:
    """Pieces of a block."""
    return call.data.shape[1] * call.data.shape[2]


@inner
def _piece_bytes(call: Any) -> int:
    shape = call.data.shape
    return shape[3] * shape[4] * shape[5] * item_bytes(call.data.dtype)


@inner
def _blocks(call: Any) -> int:
    return call.ids.shape[0]


@cpu_kernel(READ, operands="kv_cache ids", results="data", items=_blocks)
@inner
def _read(call: Any, item: int) -> None:
    size, count, blocks = _piece_bytes(call), _places(call), call.kv_cache.shape[2]
    block = min(max(call.ids.int32[item], 0), blocks - 1)
    for place in range(count):
        source = call.kv_cache.address + (place * blocks + block) * size
        copy(call.data.address + (item * count + place) * size, source, size)


@cpu_kernel(WRITE, operands="kv_cache ids data", results="stored", items=_blocks)
@inner
def _write(call: Any, item: int) -> None:
    size, count, blocks = _piece_bytes(call), _places(call), call.stored.shape[2]
    block = call.ids.int32[item]
    if 0 <= block < blocks:
        for place in range(count):
            target = call.stored.address + (place * blocks + block) * size
            copy(target, call.data.address + (item * count + place) * size, size)
