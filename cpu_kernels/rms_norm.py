"""Root-mean-square normalisation on a CPU, with the residual addition before it."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numba import cfunc, njit

from cpu_kernels import ffi, threads
from cpu_kernels.ffi import HANDLER
from cpu_kernels.jit import cached, inner
from cpu_kernels.narrow import store_as
from cpu_kernels.native import address_of
from cpu_kernels.row_shares import range_count, range_of, row_count
from cpu_kernels.vectors import LANES, add, get, load_some, madd, mul, spread, total
from cpu_kernels.widen import item_bytes, widen_some

NAME = "cpu_kernels.rms_norm"


def add_rms_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """s / rms(s) * weight and s, where s = x + residual, in residual's dtype.

    Args:
        x: float32: what a product returned.
        residual: float32 or bfloat16; so are the weight and both results. All else is float32.
        num_rows: how many rows are wanted; the others are zeros.
    """
    result = jax.ShapeDtypeStruct(residual.shape, residual.dtype)
    call = jax.ffi.ffi_call(NAME, (result, result), input_output_aliases={1: 1})
    normed, summed = call(x, residual, weight, num_rows, jnp.float32(eps))
    return normed, summed


@inner
def _row(frame: int, row: int) -> None:
    """The sum is read again as it was rounded."""
    weight, normed = ffi.operand(frame, 2), ffi.result(frame, 0)
    width, kind = ffi.size(normed, 1), ffi.dtype(normed)
    item = item_bytes(kind)
    x = ffi.address(ffi.operand(frame, 0)) + 4 * width * row
    residual = ffi.address(ffi.operand(frame, 1)) + item * width * row
    summed = ffi.address(ffi.result(frame, 1)) + item * width * row
    out = ffi.address(normed) + item * width * row
    squares = spread(0.0)
    for at in range(0, width, LANES):
        count, here = width - at, item * at
        number = add(load_some(x + 4 * at, count), widen_some(kind, residual + here, count))
        store_as(kind, summed + here, number, count)
        number = widen_some(kind, summed + here, count)
        squares = madd(number, number, squares)
    eps = get(ffi.address(ffi.operand(frame, 4)))
    scale = spread(np.float32(1) / np.sqrt(total(squares) / np.float32(width) + eps))
    for at in range(0, width, LANES):
        count, here = width - at, item * at
        number = mul(widen_some(kind, summed + here, count), scale)
        factor = widen_some(kind, ffi.address(weight) + here, count)
        store_as(kind, out + here, mul(number, factor), count)


@inner
def _clear(frame: int, row: int) -> None:
    for which in range(2):
        result = ffi.result(frame, which)
        width, kind = ffi.size(result, 1), ffi.dtype(result)
        start = ffi.address(result) + item_bytes(kind) * width * row
        for at in range(0, width, LANES):
            store_as(kind, start + item_bytes(kind) * at, spread(0.0), width - at)


@cached(njit, "int64(int64)")
def _task(block: int) -> int:
    while True:
        number = threads.claim(block)
        if number < 0:
            return threads.leave(block)
        frame = threads.frame_of(block)
        rows = ffi.size(ffi.result(frame, 0), 0)
        wanted = row_count(frame, 3, rows)
        start, stop = range_of(rows, number, range_count(frame))
        for row in range(start, stop):
            if row < wanted:
                _row(frame, row)
            else:
                _clear(frame, row)
        threads.done(block)


@cached(cfunc, HANDLER)
def _handler(frame: int) -> int:
    if not ffi.executes(frame):
        return 0
    return threads.share(frame, range_count(frame), address_of(_task))


ffi.register(NAME, _handler)
