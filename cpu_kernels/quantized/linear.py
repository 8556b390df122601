"""Products with weights in codes: x @ weight.T.

The kernel receives a whole stack of layers and the index of one, so nothing is copied. Each
product's sums run over a row in the same order, whatever the number of rows and of threads.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from cpu_kernels.linear.linear import words_of, written
from cpu_kernels.low_rank.gate import Expand, operands_of
from cpu_kernels.quantized.kernel import NAME, PLAIN
from cpu_kernels.quantized.kinds import (
    PanelKind,
    forms_of,
    padded,
    pairs_of,
    sums_group,
    tables_of,
)
from cpu_kernels.quantized.panels import num_panels


class Gate(NamedTuple):
    """The gate of a gated network.

    Attributes:
        bias: [groups * 2 * width] in float32, or empty.
        activation: its index in `ACTIVATIONS`.
        dtype: of the result.
        expand: what adapters add to the products before the bias; None adds nothing.
    """

    bias: Array
    activation: int
    dtype: jnp.dtype
    expand: Expand | None = None


def quantized_linear(
    x: Float[Array, "T in"],
    panels: UInt8[Array, "*L bytes"],
    places: Int[Array, "*L panels 2"],
    kinds: Sequence[PanelKind],
    *,
    width: int,
    dtype: jnp.dtype,
    layer: Int[Array, ""] | None = None,
    num_rows: Int[Array, ""] | None = None,
) -> Float[Array, "T width"]:
    """x @ weight.T in float32, for a weight or one layer of a stack of weights.

    Args:
        x: rounded to `dtype` if it has another.
        panels: the weight [width, in] in panels, written by `pack`; or a stack of such weights.
        places: of the panels of the weight, or of each weight of the stack.
        kinds: of the panels: see `panel_kinds`.
        width: number of rows of the weight.
        dtype: that of x in the products: float32, bfloat16 or float16.
        layer: index into the stack, int32; clipped to its ends.
        num_rows: number of rows of x to multiply, int32; the result has zeros for the others,
            so padding costs nothing.

    Raises:
        ValueError: the panels or their places do not have the shape of a weight of `width` rows.
    """
    check_places(panels, places, width)
    index = jnp.zeros((), jnp.int32) if layer is None else layer
    count = jnp.int32(x.shape[0]) if num_rows is None else num_rows
    stack = one_stack(panels, places)
    return product(x, stack, kinds, index, count.reshape(1), width, dtype)


def check_places(panels: Array, places: Array, width: int, parts: int = 1) -> None:
    """Refuses panels and places that are not those of weights with `width` rows."""
    expected = (*panels.shape[:-1], num_panels(width, parts), 2)
    if places.shape != expected:
        raise ValueError(
            f"places of the panels {panels.shape} of weights with {width} rows must be "
            f"{expected}, got {places.shape}"
        )


def one_stack(panels: Array, places: Array) -> tuple[Array, Array]:
    """All weights, one after another."""
    return panels.reshape(-1, panels.shape[-1]), places.reshape(-1, *places.shape[-2:])


def product(
    x: Float[Array, "T in"],
    stack: tuple[UInt8[Array, "weights bytes"], Int[Array, "weights panels 2"]],
    kinds: Sequence[PanelKind],
    layer: Int[Array, ""],
    ends: Int[Array, " groups"],
    width: int,
    dtype: jnp.dtype,
    gate: Gate | None = None,
) -> Float[Array, "T width"]:
    """The kernel: each group's rows by its weight in the layer, in `dtype`.

    `linear/chunks.py` has the operands. `width` is that of the result.
    """
    x = jnp.pad(x, ((0, 0), (0, padded(x.shape[1]) - x.shape[1])))
    words, group = words_of(x, dtype), sums_group(kinds)
    forms, tables = forms_of(kinds), tables_of(kinds, pairs=pairs_of(dtype))
    groups = -(-words.shape[1] // group) if group else 0
    chosen = gate or Gate(jnp.zeros(0), PLAIN, jnp.dtype(jnp.float32))
    result = jax.ShapeDtypeStruct((x.shape[0], width), written(chosen.dtype))
    sums = jax.ShapeDtypeStruct((x.shape[0], groups), jnp.float32)
    given = (words, *stack, jnp.asarray(forms), jnp.asarray(tables), layer, ends)
    call = jax.ffi.ffi_call(NAME, (result, sums))
    gated = chosen.bias, jnp.int32(chosen.activation), *operands_of(chosen.expand)
    out: Array = call(*given, *gated)[0]
    return out.astype(chosen.dtype)
