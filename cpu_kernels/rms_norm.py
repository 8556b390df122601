"""Root-mean-square normalisation on a CPU, with the residual addition before it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.calls.ranges import range_of, ranges_for
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.memory import clear
from cpu_kernels.simd.narrow import store_as
from cpu_kernels.simd.vectors import LANES, add, load_some, madd, mul, spread, total
from cpu_kernels.simd.widen import item_bytes, widen_some

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
        x: float32, as products return it.
        residual: float32 or bfloat16; the weight and both results have the same dtype.
        weight: factor of each column.
        num_rows: number of rows to compute; the others become zeros.
        eps: added to the mean of squares.
    """
    result = jax.ShapeDtypeStruct(residual.shape, residual.dtype)
    call = jax.ffi.ffi_call(NAME, (result, result), input_output_aliases={1: 1})
    normed, summed = call(x, residual, weight, num_rows, jnp.float32(eps))
    return normed, summed


@inner
def _ranges(call: Any) -> int:
    return ranges_for(call.normed.shape[0], call.normed.shape[1])


@inner
def _row(call: Any, row: int) -> None:
    """Computes one row. The norm uses the sum after rounding to the residual's dtype."""
    width, kind = call.normed.shape[1], call.normed.dtype
    item = item_bytes(kind)
    x = call.x.address + 4 * width * row
    residual = call.residual.address + item * width * row
    summed = call.summed.address + item * width * row
    normed = call.normed.address + item * width * row
    squares = spread(0.0)
    for at in range(0, width, LANES):
        count, here = width - at, item * at
        number = add(load_some(x + 4 * at, count), widen_some(kind, residual + here, count))
        store_as(kind, summed + here, number, count)
        number = widen_some(kind, summed + here, count)
        squares = madd(number, number, squares)
    mean = total(squares) / np.float32(width)
    scale = spread(np.float32(1) / np.sqrt(mean + call.eps.float32[0]))
    for at in range(0, width, LANES):
        count, here = width - at, item * at
        number = mul(widen_some(kind, summed + here, count), scale)
        factor = widen_some(kind, call.weight.address + here, count)
        store_as(kind, normed + here, mul(number, factor), count)


@inner
def _clear(call: Any, row: int) -> None:
    size = item_bytes(call.normed.dtype) * call.normed.shape[1]
    clear(call.normed.address + size * row, size)
    clear(call.summed.address + size * row, size)


@cpu_kernel(
    NAME,
    operands="x residual weight num_rows eps",
    results="normed summed",
    items=_ranges,
)
@inner
def _rows(call: Any, item: int) -> None:
    """A range of rows; rows from `num_rows` on become zeros."""
    rows = call.normed.shape[0]
    start, stop = range_of(rows, item, _ranges(call))
    wanted = call.num_rows.int32[0]
    for row in range(start, stop):
        if row < wanted:
            _row(call, row)
        else:
            _clear(call, row)
