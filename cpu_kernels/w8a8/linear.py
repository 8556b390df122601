"""Products of rows in int8 with packed weights in int8: x @ weight.T, as `linear/linear.py`.

A product is a sum of whole numbers, which is exact, then times the row's scale, then times the
weight's. So it depends neither on the other rows nor on threads, nor on the processor.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int, UInt8

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import chunk_of, num_chunks, share_of
from cpu_kernels.w8a8.panels import codes_shape
from cpu_kernels.w8a8.rounding import round_rows
from cpu_kernels.w8a8.tiles import multiply, scales_of

NAME = "cpu_kernels.w8a8_linear"


def linear(
    x: Float[Array, "T in"],
    panels: UInt8[Array, "*L panels words columns"],
    scales: Float32[Array, "*L panels width"],
    *,
    width: int,
    layer: Int[Array, ""] | None = None,
    num_rows: Int[Array, ""] | None = None,
) -> Float32[Array, "T width"]:
    """x @ weight.T, with each row of x rounded to int8.

    Args:
        x: float32, bfloat16 or float16.
        panels, scales: the weight [width, in], packed by `panels.py`; or a stack.
        width: number of rows of the weight.
        layer: index into the stack, int32; clipped to its ends.
        num_rows: number of rows of x to multiply, int32; the result has zeros for the others.

    Raises:
        ValueError: the panels do not have the shape of a weight [width, in], or rows are too long.
    """
    index = jnp.zeros((), jnp.int32) if layer is None else layer
    count = jnp.int32(x.shape[0]) if num_rows is None else num_rows
    check_panels(panels, width, x.shape[1], 1)
    return _product(x, panels, scales, index, count.reshape(1), width)


def grouped_linear(
    x: Float[Array, "T in"],
    panels: UInt8[Array, "*L X panels words columns"],
    scales: Float32[Array, "*L X panels width"],
    starts: Int[Array, " starts"],
    *,
    width: int,
    layer: Int[Array, ""],
) -> Float32[Array, "T width"]:
    """x[r] @ weight[group of row r].T. The rows of no group become zeros.

    Args:
        panels, scales: X weights [width, in]; or those of each layer. The weight of a group without
            rows is not read.
        starts: the rows of group g are `starts[g]:starts[g + 1]`, int32 [X + 1]; the first is 0.
        layer: index of the layer; clipped to its ends.

    Raises:
        ValueError: the panels do not have the shape of such weights, or rows are too long.
    """
    check_panels(panels, width, x.shape[1], 1)
    check_groups(panels, starts)
    return _product(x, panels, scales, layer, starts[1:], width)


def check_panels(panels: Array, width: int, size: int, parts: int) -> None:
    """Refuses panels that are not those of weights [parts * width, size]."""
    expected = codes_shape(parts * width, size, parts)
    if panels.shape[-3:] != expected:
        raise ValueError(
            f"panels of a weight [{parts * width}, {size}] must be {expected}, got {panels.shape}"
        )


def check_groups(panels: Array, starts: Array) -> None:
    """Refuses panels that are not those of a weight for each group, or of layers of them."""
    groups = starts.shape[0] - 1
    if panels.ndim not in (4, 5) or panels.shape[-4] != groups:
        raise ValueError(
            f"panels of {groups} groups must be [{groups}, ...] or [layers, {groups}, ...], "
            f"got {panels.shape}"
        )


def operands_of(x: Array, panels: Array, scales: Array, layer: Array, ends: Array) -> list[Array]:
    """What a kernel gets: rounded rows, the weights of all layers one after another, and groups."""
    rows, stack = round_rows(x, ends), panels.reshape(-1, *panels.shape[-3:])
    return [*rows, stack, scales.reshape(-1, *scales.shape[-2:]), layer, ends]


def _product(
    x: Array, panels: Array, scales: Array, layer: Array, ends: Array, width: int
) -> Array:
    """The kernel: each group's rows by its weight in the layer."""
    result = jax.ShapeDtypeStruct((x.shape[0], width), jnp.float32)
    operands = operands_of(x, panels, scales, layer, ends)
    out: Array = jax.ffi.ffi_call(NAME, result)(*operands)
    return out


@inner
def _chunks(call: Any) -> int:
    return num_chunks(call, call.panels.shape[1])


@cpu_kernel(
    NAME,
    operands="x scales firsts panels panel_scales layer ends",
    results="out",
    items=_chunks,
    neighbours=True,
)
@inner
def _chunk(call: Any, item: int) -> None:
    share = share_of(call, item, call.panels.shape[1])
    multiply(chunk_of(call, share, 1), scales_of(call, share, 1))
