"""Storing keys and values in their slots on a CPU: as many copies as there are tokens and heads.

XLA's scatter takes some microseconds a token; this one runs at the speed of memory. All cores
share a prompt's tokens: the first to write to a page waits for Linux to find and clear it.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped
from numba import cfunc, njit

from cpu_kernels import ffi, threads
from cpu_kernels.ffi import HANDLER
from cpu_kernels.jit import cached, inner
from cpu_kernels.native import address_of, copy
from cpu_kernels.row_shares import range_of, ranges_for
from cpu_kernels.vectors import get_int
from cpu_kernels.widen import item_bytes

NAME = "cpu_kernels.kv_write"


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


@inner
def _range_count(frame: int) -> int:
    """Into how many ranges a call's tokens are cut, one at least."""
    k = ffi.operand(frame, 1)
    return ranges_for(ffi.size(k, 0), 2 * ffi.size(k, 1) * ffi.size(k, 2))


@inner
def _num_slots(frame: int, layer: int) -> int:
    """Slots of a layer; 0 for one that the cache does not have."""
    cache = ffi.result(frame, 0)
    if 0 <= layer < ffi.size(cache, 0):
        return ffi.size(cache, 2) * ffi.size(cache, 4)
    return 0


@cached(njit, "int64(int64)")
def _task(block: int) -> int:
    while True:
        number = threads.claim(block)
        if number < 0:
            return threads.leave(block)
        frame = threads.frame_of(block)
        slots, layer = ffi.operand(frame, 3), get_int(ffi.address(ffi.operand(frame, 4)))
        num_slots = _num_slots(frame, layer)
        start, stop = range_of(ffi.size(slots, 0), number, _range_count(frame))
        for token in range(start, stop):
            slot = get_int(ffi.address(slots) + 4 * token)
            if 0 <= slot < num_slots:
                _store(frame, 0, token, slot, layer)
                _store(frame, 1, token, slot, layer)
        threads.done(block)


@cached(cfunc, HANDLER)
def _handler(frame: int) -> int:
    if not ffi.executes(frame):
        return 0
    return threads.share(frame, _range_count(frame), address_of(_task))


ffi.register(NAME, _handler)
