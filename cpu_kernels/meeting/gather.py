"""All processes of a group get what each of them has: the one way in which they talk in a step.

They must come in the same order. So where a program gathers twice, the second depends on the first,
by itself or by `after`: XLA may else run them in either order, or at once.

One that waits looks often, then lets others have its core, then sleeps, up to MOST_SLEEP_US at a
time: the one that it waits for may need the core. Nobody waits once ABORTED is set, and what is
gathered then means nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.meeting.place import ADDRESS, RANK, SIZE, buffer_of, line_of, place
from cpu_kernels.meeting.shared_memory import ABORTED, CHUNK
from cpu_kernels.simd.memory import c_function, copy, load, store
from cpu_kernels.simd.structs import int64s
from cpu_kernels.simd.widen import item_bytes

GATHER, RANK_OF, AFTER = "cpu_kernels.gather", "cpu_kernels.rank", "cpu_kernels.after"
LOOKS, YIELDS = 2000, 500  # before it sleeps
MOST_SLEEP_US = 5000  # longer, and nobody takes it for busy (`processes.ActiveTime`)

give_way = c_function("sched_yield")
sleep_us = c_function("usleep")


def gathered(x: Shaped[Array, "..."], size: int) -> Shaped[Array, "size ..."]:
    """What each of `size` processes has as x, by rank.

    Args:
        x: numbers of one of `widen.DTYPES`.
    """
    result = jax.ShapeDtypeStruct((size, *x.shape), x.dtype)
    every: Array = jax.ffi.ffi_call(GATHER, result)(x)
    return every


def this_rank() -> Int[Array, ""]:
    """Which process this is, from 0."""
    rank: Array = jax.ffi.ffi_call(RANK_OF, jax.ShapeDtypeStruct((), jnp.int32))()
    return rank


def after(x: Shaped[Array, "..."], other: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """x, once there is `other`: what is gathered of the one is gathered behind the other."""
    result = jax.ShapeDtypeStruct(x.shape, x.dtype)
    same: Array = jax.ffi.ffi_call(AFTER, result, input_output_aliases={0: 0})(x, other)
    return same


@inner
def _have_come(address: int, size: int, turn: int) -> bool:
    """Waits until all processes have come; False if nobody waits any more."""
    looks = 0
    for other in range(size):
        while load(line_of(address, other)) < turn:
            if load(address + 8 * ABORTED) != 0:
                return False
            looks += 1
            if looks > LOOKS + YIELDS:
                sleep_us(min(looks - LOOKS - YIELDS, MOST_SLEEP_US))
            elif looks > LOOKS:
                give_way(0)
    return True


@inner
def _bytes(buffer: Any) -> int:
    size = item_bytes(buffer.dtype)
    for axis in range(buffer.rank):
        size *= buffer.shape[axis]
    return size


@inner
def _meet(call: Any) -> int:
    """All of the work, on the calling thread."""
    here = int64s(place(0))
    address, rank, size = here[ADDRESS], here[RANK], here[SIZE]
    total = _bytes(call.x)
    for start in range(0, total, CHUNK):
        part = min(CHUNK, total - start)
        turn = load(line_of(address, rank)) + 1
        copy(buffer_of(address, rank, turn), call.x.address + start, part)
        store(line_of(address, rank), turn)
        if not _have_come(address, size, turn):
            return 0
        for other in range(size):
            target = call.every.address + other * total + start
            copy(target, buffer_of(address, other, turn), part)
    return 0


@inner
def _rank(call: Any) -> int:
    call.rank_of.int32[0] = int64s(place(0))[RANK]
    return 0


@inner
def _same(call: Any) -> int:
    if call.same.address != call.x.address:
        copy(call.same.address, call.x.address, _bytes(call.x))
    return 0


@cpu_kernel(GATHER, operands="x", results="every", items=_meet)
@inner
def _gather(call: Any, item: int) -> None:
    pass


@cpu_kernel(RANK_OF, operands="", results="rank_of", items=_rank)
@inner
def _say_rank(call: Any, item: int) -> None:
    pass


@cpu_kernel(AFTER, operands="x other", results="same", items=_same)
@inner
def _after(call: Any, item: int) -> None:
    pass
