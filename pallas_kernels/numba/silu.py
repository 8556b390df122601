"""SwiGLU's gate on a CPU: silu(gate) * up of the products of both, which lie side by side."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from numba import cfunc, njit

from pallas_kernels.numba import ffi, threads
from pallas_kernels.numba.ffi import HANDLER
from pallas_kernels.numba.functions import exp
from pallas_kernels.numba.jit import cached, inner
from pallas_kernels.numba.narrow import store_as
from pallas_kernels.numba.native import address_of
from pallas_kernels.numba.row_shares import range_count, range_of, row_count
from pallas_kernels.numba.vectors import (
    LANES,
    add,
    div,
    larger,
    load_some,
    mul,
    spread,
    sub,
    where_less,
)
from pallas_kernels.numba.widen import item_bytes

NAME = "pallas_kernels.silu_and_mul"


def silu_and_mul(
    gate_up: Float[Array, "T two_F"], num_rows: Int[Array, ""], *, dtype: jnp.dtype
) -> Float[Array, "T F"]:
    """silu(gate) * up in float32, rounded to `dtype`: float32 or bfloat16.

    Args:
        gate_up: float32; the gate's columns, then those of up.
        num_rows: how many rows are wanted; the others are zeros.
    """
    tokens, width = gate_up.shape
    result = jax.ShapeDtypeStruct((tokens, width // 2), dtype)
    out: Array = jax.ffi.ffi_call(NAME, result)(gate_up, num_rows)
    return out


@inner
def _gated(gate: Any, up: Any) -> Any:
    """exp is only asked for what is not positive."""
    zero, one = spread(0.0), spread(1.0)
    small = exp(sub(zero, larger(gate, sub(zero, gate))))
    share = div(where_less(gate, zero, small, one), add(one, small))
    return mul(mul(gate, share), up)


@inner
def _row(frame: int, row: int, wanted: bool) -> None:
    result = ffi.result(frame, 0)
    width, kind = ffi.size(result, 1), ffi.dtype(result)
    gate = ffi.address(ffi.operand(frame, 0)) + 8 * width * row
    out = ffi.address(result) + item_bytes(kind) * width * row
    for at in range(0, width, LANES):
        count, value = width - at, spread(0.0)
        if wanted:
            here = gate + 4 * at
            value = _gated(load_some(here, count), load_some(here + 4 * width, count))
        store_as(kind, out + item_bytes(kind) * at, value, count)


@cached(njit, "int64(int64)")
def _task(block: int) -> int:
    while True:
        number = threads.claim(block)
        if number < 0:
            return threads.leave(block)
        frame = threads.frame_of(block)
        rows = ffi.size(ffi.result(frame, 0), 0)
        wanted = row_count(frame, 1, rows)
        start, stop = range_of(rows, number, range_count(frame))
        for row in range(start, stop):
            _row(frame, row, row < wanted)
        threads.done(block)


@cached(cfunc, HANDLER)
def _handler(frame: int) -> int:
    if not ffi.executes(frame):
        return 0
    return threads.share(frame, range_count(frame), address_of(_task))


ffi.register(NAME, _handler)
