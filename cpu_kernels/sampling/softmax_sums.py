"""The sums of each row's softmax: its largest number, and the sum of exp(number - largest).

Each row's numbers are added in one order, whatever the number of rows. XLA's reductions take
another order where there are few rows.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.calls.threads import range_of, ranges_for
from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.functions import exp
from cpu_kernels.simd.vectors import (
    LANES,
    add,
    count_from,
    larger,
    largest,
    load_some,
    put,
    spread,
    sub,
    total,
    where_less,
)

NAME = "cpu_kernels.softmax"


def softmax_sums(x: Float[Array, "R V"]) -> tuple[Float[Array, "R"], Float[Array, "R"]]:
    """Each row's largest number, and the sum of exp(number - largest), of float32.

    A row of -inf alone gives -inf and 0, one with NaN gives a sum of NaN.
    """
    result = jax.ShapeDtypeStruct(x.shape[:1], jnp.float32)
    call = jax.ffi.ffi_call(NAME, (result, result))
    top, sums = call(x)
    return top, sums


@inner
def _ranges(call: Any) -> int:
    return ranges_for(call.x.shape[0], call.x.shape[1])


@inner
def _row(call: Any, row: int) -> None:
    """One row."""
    width = call.x.shape[1]
    start = call.x.address + 4 * width * row
    top = _top(start, width)
    put(call.top.address + 4 * row, top)
    # Of infinities there is no difference.
    middle = spread(top if np.isfinite(top) else np.float32(0))
    zero, last, sums = spread(0.0), spread(width - 1), spread(0.0)
    for at in range(0, width, LANES):
        weight = exp(sub(load_some(start + 4 * at, width - at), middle))
        sums = add(sums, where_less(count_from(at), last, weight, zero))
    put(call.sums.address + 4 * row, total(sums))


@inner
def _top(start: int, width: int) -> Any:
    nothing = spread(-np.inf)
    peak = nothing
    for at in range(0, width, LANES):
        number = load_some(start + 4 * at, width - at)
        peak = larger(where_less(count_from(at), spread(width - 1), number, nothing), peak)
    return largest(peak)


@cpu_kernel(NAME, operands="x", results="top sums", items=_ranges)
@inner
def _rows(call: Any, item: int) -> None:
    """A range of rows."""
    start, stop = range_of(call.x.shape[0], item, _ranges(call))
    for row in range(start, stop):
        _row(call, row)
