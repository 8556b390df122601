"""Rows of x rounded to int8, each with a scale of its own: the activations of W8A8.

A row's scale is its largest magnitude divided by 127. Each number is divided by it and rounded to
the nearest integer, ties to even (SmoothQuant, Xiao et al., 2022, section 3).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int, Int8, Int32

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.calls.threads import range_of, ranges_for
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.narrow import ROUNDER, larger_magnitude, largest_magnitude, store_codes
from cpu_kernels.simd.vectors import LANES, add, div, spread, sub, total
from cpu_kernels.simd.widen import item_bytes, widen, widen_some

NAME = "cpu_kernels.w8a8_rows"
LARGEST = 127
ZERO = 128  # what is added to codes of weights, so that they have no sign
# The longest row whose product with a row of weights is an int32, and the sum of whose codes is a
# float32: 132,104.
MOST = (2**31 - 1) // (LARGEST * ZERO)
# A row of smaller numbers counts as zeros. XLA's threads flush subnormal numbers to 0, and from
# here on neither a scale nor half a step is one.
LEAST = 2.0**-118


class Rows(NamedTuple):
    """Rows of x in int8.

    Attributes:
        codes: followed by zeros, up to a multiple of 16.
        scales: a number is its code times its row's scale.
        firsts: -128 times the sum of each row's codes, where the sums of its products start.
    """

    codes: Int8[Array, "T padded"]
    scales: Float32[Array, " T"]
    firsts: Int32[Array, " T"]


def round_rows(x: Float[Array, "T in"], ends: Int[Array, " groups"]) -> Rows:
    """Rounds the rows before the largest of `ends`; the others have any results.

    All products of a row with a number that is not finite are NaN.

    Args:
        x: float32, bfloat16 or float16.

    Raises:
        ValueError: rows are longer than MOST.
    """
    rows, size = x.shape
    check_size(size)
    results = (
        jax.ShapeDtypeStruct((rows, -(-size // LANES) * LANES), jnp.int8),
        jax.ShapeDtypeStruct((rows,), jnp.float32),
        jax.ShapeDtypeStruct((rows,), jnp.int32),
    )
    return Rows(*jax.ffi.ffi_call(NAME, results)(x, ends))


def check_size(size: int) -> None:
    """Refuses rows whose products may not fit into int32."""
    if size > MOST:
        raise ValueError(f"rows of W8A8 must have at most {MOST} numbers, got {size}")


@inner
def _count(call: Any) -> int:
    """Number of rows to round."""
    count = 0
    for group in range(call.ends.shape[0]):
        count = max(count, call.ends.int32[group])
    return min(count, call.x.shape[0])


@inner
def _numbers(kind: int, start: int, at: int, width: int) -> Any:
    """16 numbers of a row, or the last ones and zeros."""
    place = start + item_bytes(kind) * at
    if at + LANES <= width:
        return widen(kind, place)
    return widen_some(kind, place, width - at)


@inner
def _round(call: Any, row: int) -> None:
    kind, width = call.x.dtype, call.x.shape[1]
    start = call.x.address + item_bytes(kind) * width * row
    above = spread(0.0)
    for at in range(0, width, LANES):
        above = larger_magnitude(above, _numbers(kind, start, at, width))
    largest = largest_magnitude(above)
    scale = np.float32(1) if largest < np.float32(LEAST) else largest / np.float32(LARGEST)
    codes = call.codes.address + call.codes.shape[1] * row
    divisor, rounder, sums = spread(scale), spread(ROUNDER), spread(0.0)
    for at in range(0, width, LANES):
        shifted = add(div(_numbers(kind, start, at, width), divisor), rounder)
        store_codes(codes + at, shifted)
        sums = add(sums, sub(shifted, rounder))
    call.scales.float32[row] = scale
    # With infinity in a row its codes are 0, and so are its sums: products are 0 * infinity, NaN.
    finite = largest < np.float32(np.inf)
    call.firsts.int32[row] = np.int32(np.float32(-ZERO) * total(sums)) if finite else 0


@inner
def _ranges(call: Any) -> int:
    return ranges_for(_count(call), call.x.shape[1])


@cpu_kernel(NAME, operands="x ends", results="codes scales firsts", items=_ranges)
@inner
def _rows(call: Any, item: int) -> None:
    """A range of rows."""
    first, last = range_of(_count(call), item, _ranges(call))
    for row in range(first, last):
        _round(call, row)
