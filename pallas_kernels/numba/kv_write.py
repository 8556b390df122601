"""Storing keys and values in their slots on a CPU: as many copies as there are tokens and heads.

XLA's scatter takes some microseconds a token; this one runs at the speed of memory.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped
from numba import cfunc

from pallas_kernels.numba import ffi
from pallas_kernels.numba.ffi import HANDLER
from pallas_kernels.numba.jit import cached, inner
from pallas_kernels.numba.native import copy
from pallas_kernels.numba.vectors import get_int
from pallas_kernels.numba.widen import item_bytes

NAME = "pallas_kernels.kv_write"


def store(
    kv_cache: Shaped[Array, "L 2 N K B D"],
    k: Shaped[Array, "T K D"],
    v: Shaped[Array, "T K D"],
    slot_mapping: Int[Array, " T"],
    layer: int | Int[Array, ""],
) -> Shaped[Array, "L 2 N K B D"]:
    """The cache with key and value of each token in its slot, in place where XLA allows it.

    Args:
        k, v: of the cache's dtype, which is one of `widen.DTYPES`.
        slot_mapping: a slot outside of the cache is not written.
        layer: not negative; one beyond the cache writes nothing.
    """
    result = jax.ShapeDtypeStruct(kv_cache.shape, kv_cache.dtype)
    call = jax.ffi.ffi_call(NAME, result, input_output_aliases={0: 0})
    stored: Array = call(kv_cache, k, v, slot_mapping.astype(jnp.int32), jnp.int32(layer))
    return stored


@inner
def _store(frame: int, which: int, token: int, slot: int, layer: int) -> None:
    """A token's keys (0) or values (1), a run of D numbers for each head."""
    cache, new = ffi.result(frame, 0), ffi.operand(frame, 1 + which)
    blocks, heads = ffi.size(cache, 2), ffi.size(cache, 3)
    block_size = ffi.size(cache, 4)
    run = ffi.size(cache, 5) * item_bytes(ffi.dtype(cache))
    first = ((layer * 2 + which) * blocks + slot // block_size) * heads
    target = ffi.address(cache) + (first * block_size + slot % block_size) * run
    source = ffi.address(new) + token * heads * run
    for head in range(heads):
        copy(target + head * block_size * run, source + head * run, run)


@cached(cfunc, HANDLER)
def _handler(frame: int) -> int:
    if not ffi.executes(frame):
        return 0
    cache, slots = ffi.result(frame, 0), ffi.operand(frame, 3)
    layer, num_slots = get_int(ffi.address(ffi.operand(frame, 4))), 0
    if 0 <= layer < ffi.size(cache, 0):
        num_slots = ffi.size(cache, 2) * ffi.size(cache, 4)
    for token in range(ffi.size(slots, 0)):
        slot = get_int(ffi.address(slots) + 4 * token)
        if 0 <= slot < num_slots:
            _store(frame, 0, token, slot, layer)
            _store(frame, 1, token, slot, layer)
    return 0


ffi.register(NAME, _handler)
