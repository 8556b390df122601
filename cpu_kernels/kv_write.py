"""Stores keys and values in their slots, with one copy for each token and head.

This runs at the speed of memory. All cores share a prompt's tokens, because the first write to a
page waits for Linux to find and clear it.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.calls.threads import range_of, ranges_for
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.memory import copy
from cpu_kernels.simd.widen import item_bytes

NAME = "cpu_kernels.kv_write"


def store(
    kv_cache: Shaped[Array, "L kv N K B D"],
    k: Shaped[Array, "T K D"],
    v: Shaped[Array, "T K D"],
    slot_mapping: Int[Array, " T"],
    layer: int | Int[Array, ""],
) -> Shaped[Array, "L kv N K B D"]:
    """Returns the cache with each token's key and value in its slot, in place where XLA allows it.

    Args:
        k, v: keys and values of the cache's dtype, which is one of `widen.DTYPES`. A cache of keys
            only, `[L, 1, N, K, B, D]`, gets k.
        slot_mapping: slot of each token; a token with a slot outside of the cache is skipped.
        layer: which layer, not negative; a layer beyond the cache's last writes nothing.
    """
    result = jax.ShapeDtypeStruct(kv_cache.shape, kv_cache.dtype)
    call = jax.ffi.ffi_call(NAME, result, input_output_aliases={0: 0})
    stored: Array = call(kv_cache, k, v, slot_mapping.astype(jnp.int32), jnp.int32(layer))
    return stored


@inner
def _store(call: Any, which: int, new: Any, token: int, slot: int) -> None:
    """A token's keys (0) or values (1), a run of D numbers for each head."""
    shape, layer = call.stored.shape, call.layer.int32[0]
    blocks, heads, block_size = shape[2], shape[3], shape[4]
    run = shape[5] * item_bytes(call.stored.dtype)
    first = ((layer * shape[1] + which) * blocks + slot // block_size) * heads
    target = call.stored.address + (first * block_size + slot % block_size) * run
    source = new.address + token * heads * run
    for head in range(heads):
        copy(target + head * block_size * run, source + head * run, run)


@inner
def _ranges(call: Any) -> int:
    """Number of ranges that the tokens are cut into."""
    return ranges_for(call.k.shape[0], 2 * call.k.shape[1] * call.k.shape[2])


@inner
def _num_slots(call: Any) -> int:
    """Number of slots of the layer; 0 if the cache does not have the layer."""
    shape = call.stored.shape
    if 0 <= call.layer.int32[0] < shape[0]:
        return shape[2] * shape[4]
    return 0


@cpu_kernel(NAME, operands="kv_cache k v slot_mapping layer", results="stored", items=_ranges)
@inner
def _tokens(call: Any, item: int) -> None:
    """A range of tokens."""
    num_slots = _num_slots(call)
    start, stop = range_of(call.slot_mapping.shape[0], item, _ranges(call))
    for token in range(start, stop):
        slot = call.slot_mapping.int32[token]
        if 0 <= slot < num_slots:
            _store(call, 0, call.k, token, slot)
            if call.stored.shape[1] == 2:
                _store(call, 1, call.v, token, slot)
