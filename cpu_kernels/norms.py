"""RMSNorm (Zhang and Sennrich, 2019) and LayerNorm (Ba, Kiros and Hinton, 2016) on a CPU.

One kernel computes both: RMSNorm is LayerNorm around 0 instead of around the row's mean.

A row stays in cache while it is read several times: for its mean, for the mean square of the
distances from it, and for the result. The mean of squares minus the square of the mean would take
one pass less, but loses the digits of rows that are far from 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.calls.threads import range_of, ranges_for
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.memory import clear
from cpu_kernels.simd.narrow import store_as
from cpu_kernels.simd.structs import FLOAT32
from cpu_kernels.simd.vectors import (
    LANES,
    add,
    count_from,
    load_some,
    madd,
    mul,
    spread,
    sub,
    total,
    where_less,
)
from cpu_kernels.simd.widen import item_bytes, widen_some

NAME = "cpu_kernels.row_norm"


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
        residual: float32 or bfloat16; both results have the same dtype.
        weight: factor of each column, float32.
        num_rows: number of rows to compute; the others become zeros.
        eps: added to the mean of squares.
    """
    dtype = residual.dtype
    return norm(x, residual, weight, None, num_rows, eps=eps, centred=False, dtype=dtype)


def rms_norm(
    x: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
    dtype: DTypeLike,
) -> Float[Array, "T E"]:
    """x / rms(x) * weight in `dtype`: float32 or bfloat16. See `add_rms_norm`."""
    return norm(x, None, weight, None, num_rows, eps=eps, centred=False, dtype=dtype)[0]


def add_layer_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    bias: Float[Array, " E"] | None,
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """(s - mean(s)) / sqrt(var(s) + eps) * weight + bias and s, where s = x + residual.

    Both results have residual's dtype. The variance is around the mean, divided by E.

    Args:
        x: float32, as products return it.
        residual: float32 or bfloat16.
        weight: factor of each column, float32.
        bias: term of each column, float32; None adds nothing.
        num_rows: number of rows to compute; the others become zeros.
        eps: added to the variance.
    """
    return norm(x, residual, weight, bias, num_rows, eps=eps, centred=True, dtype=residual.dtype)


def layer_norm(
    x: Float[Array, "T E"],
    weight: Float[Array, " E"],
    bias: Float[Array, " E"] | None,
    num_rows: Int[Array, ""],
    *,
    eps: float,
    dtype: DTypeLike,
) -> Float[Array, "T E"]:
    """The norm of x alone in `dtype`: float32 or bfloat16. See `add_layer_norm`."""
    return norm(x, None, weight, bias, num_rows, eps=eps, centred=True, dtype=dtype)[0]


def norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"] | None,
    weight: Float[Array, "*heads E"],
    bias: Float[Array, "*heads E"] | None,
    num_rows: Int[Array, ""],
    *,
    eps: float,
    centred: bool,
    dtype: DTypeLike,
) -> tuple[Float[Array, "T E"], Float[Array, "... E"]]:
    """(s - m) / sqrt(mean((s - m)**2) + eps) * weight + bias and s, where s = x + residual.

    Args:
        x, weight, bias: computed with in float32. None as bias adds nothing. Rows take the heads'
            weights in turn.
        residual: numbers of `dtype`, whose memory s takes. None: s is x, and the second result has
            no rows.
        num_rows: number of rows to compute; the others become zeros.
        centred: whether m is the mean of s; otherwise it is 0.
        dtype: the results' dtype, float32 or bfloat16.
    """
    old = jnp.zeros((0, x.shape[1]), dtype) if residual is None else residual
    added = jnp.zeros(0) if bias is None else bias.astype(jnp.float32).reshape(-1)
    results = jax.ShapeDtypeStruct(x.shape, dtype), jax.ShapeDtypeStruct(old.shape, dtype)
    call = jax.ffi.ffi_call(NAME, results, input_output_aliases={1: 1})
    floats = (x.astype(jnp.float32), old, weight.astype(jnp.float32).reshape(-1), added)
    normed, summed = call(*floats, num_rows, jnp.float32(eps), jnp.int32(centred))
    return normed, summed


@inner
def _has_residual(call: Any) -> bool:
    return call.residual.shape[0] > 0


@inner
def _numbers(call: Any, row: int) -> tuple[int, int]:
    """The dtype and the address of the numbers that a row's norm is of."""
    width, kind = call.normed.shape[1], call.normed.dtype
    if _has_residual(call):
        return kind, call.summed.address + item_bytes(kind) * width * row
    return FLOAT32, call.x.address + 4 * width * row


@inner
def _add(call: Any, row: int) -> tuple[Any, Any]:
    """Writes x + residual, if there is one, and returns the mean and the mean square of the row.

    Both are of the sum after it was rounded.
    """
    width = call.normed.shape[1]
    kind, start = _numbers(call, row)
    item = item_bytes(kind)
    x, residual = call.x.address + 4 * width * row, call.residual.address + item * width * row
    sums, squares, added = spread(0.0), spread(0.0), _has_residual(call)
    for at in range(0, width, LANES):
        count = width - at
        number = load_some(x + 4 * at, count)
        if added:
            number = add(number, widen_some(kind, residual + item * at, count))
            store_as(kind, start + item * at, number, count)
            number = widen_some(kind, start + item * at, count)
        sums = add(sums, number)
        squares = madd(number, number, squares)
    return total(sums) / np.float32(width), total(squares) / np.float32(width)


@inner
def _variance(kind: int, start: int, width: int, mean: Any) -> Any:
    """The mean square of the distances from the mean."""
    squares, zero, middle, last = spread(0.0), spread(0.0), spread(mean), spread(width - 1)
    for at in range(0, width, LANES):
        apart = sub(widen_some(kind, start + item_bytes(kind) * at, width - at), middle)
        apart = where_less(count_from(at), last, apart, zero)
        squares = madd(apart, apart, squares)
    return total(squares) / np.float32(width)


@inner
def _heads(call: Any) -> int:
    """How many rows of weights there are: one, or each head's own."""
    return max(call.weight.shape[0] // call.normed.shape[1], 1)


@inner
def _row(call: Any, row: int) -> None:
    """Computes one row."""
    width, kind = call.normed.shape[1], call.normed.dtype
    mean, square = _add(call, row)
    source, start = _numbers(call, row)
    if call.centred.int32[0]:
        square = _variance(source, start, width, mean)
    else:
        mean = np.float32(0)
    scale = spread(np.float32(1) / np.sqrt(square + call.eps.float32[0]))
    middle, biased = spread(mean), call.bias.shape[0] > 0
    normed = call.normed.address + item_bytes(kind) * width * row
    head = row % _heads(call)
    weight = call.weight.address + 4 * width * head
    bias = call.bias.address + 4 * width * head
    for at in range(0, width, LANES):
        count = width - at
        number = sub(widen_some(source, start + item_bytes(source) * at, count), middle)
        number = mul(mul(number, scale), load_some(weight + 4 * at, count))
        if biased:
            number = add(number, load_some(bias + 4 * at, count))
        store_as(kind, normed + item_bytes(kind) * at, number, count)


@inner
def _clear(call: Any, row: int) -> None:
    size = item_bytes(call.normed.dtype) * call.normed.shape[1]
    clear(call.normed.address + size * row, size)
    if _has_residual(call):
        clear(call.summed.address + size * row, size)


@inner
def _ranges(call: Any) -> int:
    return ranges_for(call.normed.shape[0], call.normed.shape[1])


@cpu_kernel(
    NAME,
    operands="x residual weight bias num_rows eps centred",
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
