"""A gated network's first product and its gate in int8, as `linear/gated_linear.py`."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int, UInt8

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.linear.chunks import chunk_of, num_chunks, share_of
from cpu_kernels.linear.gated_linear import (
    PARTS,
    add_adapters,
    bias_of,
    gate_pair,
    gated_bytes,
    pair_of,
)
from cpu_kernels.linear.gates import ACTIVATIONS
from cpu_kernels.linear.linear import written
from cpu_kernels.low_rank import gate
from cpu_kernels.simd.micro_kernel import COLUMNS
from cpu_kernels.w8a8.linear import check_groups, check_panels, operands_of
from cpu_kernels.w8a8.tiles import Scales, multiply, scales_of

NAME = "cpu_kernels.w8a8_gated_linear_with_adapters"


def gated_linear(
    x: Float[Array, "T in"],
    panels: UInt8[Array, "*L panels words columns"],
    scales: Float32[Array, "*L panels width"],
    bias: Float[Array, " two_F"] | None = None,
    *,
    width: int,
    layer: Int[Array, ""],
    num_rows: Int[Array, ""],
    activation: str = "silu",
    dtype: jnp.dtype,
    expand: gate.Expand | None = None,
) -> Float[Array, "T width"]:
    """activation(x @ gate.T) * (x @ up.T), rounded once to `dtype`.

    Args:
        x, num_rows, layer: as in `linear`.
        panels, scales: the weight [2 * width, in], the rows of gate and then those of up, packed in
            two parts; or a stack of such weights.
        bias: added to the products before the gate; None adds nothing.
        width: F, the number of columns of gate and of up.
        activation: one of `ACTIVATIONS`.
        dtype: of the result.
        expand: what adapters add to the products before the bias; None adds nothing.

    Raises:
        ValueError: the panels do not have the shape of such a weight, or rows are too long.
    """
    check_panels(panels, width, x.shape[1], PARTS)
    count = num_rows.reshape(1)
    return _product(x, panels, scales, bias, layer, count, width, activation, dtype, expand)


def grouped_gated_linear(
    x: Float[Array, "T in"],
    panels: UInt8[Array, "*L X panels words columns"],
    scales: Float32[Array, "*L X panels width"],
    bias: Float[Array, "X two_F"] | None,
    starts: Int[Array, " starts"],
    *,
    width: int,
    layer: Int[Array, ""],
    activation: str = "silu",
    dtype: jnp.dtype,
    expand: gate.Expand | None = None,
) -> Float[Array, "T width"]:
    """The gated product by groups: see `grouped_linear` and `gated_linear`."""
    check_panels(panels, width, x.shape[1], PARTS)
    check_groups(panels, starts)
    ends = starts[1:]
    return _product(x, panels, scales, bias, layer, ends, width, activation, dtype, expand)


def _product(
    x: Array,
    panels: Array,
    scales: Array,
    bias: Array | None,
    layer: Array,
    ends: Array,
    width: int,
    activation: str,
    dtype: jnp.dtype,
    expand: gate.Expand | None = None,
) -> Array:
    result = jax.ShapeDtypeStruct((x.shape[0], width), written(dtype))
    number = jnp.int32(ACTIVATIONS.index(activation))
    added = jnp.zeros(0) if bias is None else bias.astype(jnp.float32).reshape(-1)
    operands = operands_of(x, panels, scales, layer, ends)
    given = (*operands, added, number, *gate.operands_of(expand))
    out: Array = jax.ffi.ffi_call(NAME, result)(*given)
    return out.astype(dtype)


@inner
def _chunks(call: Any) -> int:
    return num_chunks(call, call.panels.shape[1] // PARTS)


@cpu_kernel(
    NAME,
    operands="x scales firsts panels panel_scales layer ends bias activation " + gate.OPERANDS,
    results="out",
    items=_chunks,
    scratch=gated_bytes,
    neighbours=True,
)
@inner
def _chunk(call: Any, item: int, products: int) -> None:
    """Multiplies and gates pairs of panels, with the products in the thread's own memory."""
    share = share_of(call, item, call.panels.shape[1] // PARTS)
    chunk, scales = chunk_of(call, share, PARTS), scales_of(call, share, PARTS)
    bias = bias_of(call, share)
    for pair in range(chunk.num_panels // PARTS):
        panels = scales.panels + 4 * COLUMNS * PARTS * pair
        multiply(pair_of(chunk, pair, products), Scales(scales.firsts, scales.rows, panels))
        add_adapters(call, share, pair, products)
        gate_pair(call, chunk, bias, pair, products)
