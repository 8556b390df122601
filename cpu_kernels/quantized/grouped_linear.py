"""Products of rows that lie in groups, each with its own weight in codes: a mixture's experts."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from cpu_kernels.linear.gated_linear import PARTS
from cpu_kernels.low_rank.gate import Expand
from cpu_kernels.quantized.gated_linear import gate_of
from cpu_kernels.quantized.kinds import PanelKind
from cpu_kernels.quantized.linear import check_places, one_stack, product


def grouped_quantized_linear(
    x: Float[Array, "T in"],
    panels: UInt8[Array, "*L X bytes"],
    places: Int[Array, "*L X panels 2"],
    kinds: Sequence[PanelKind],
    starts: Int[Array, " starts"],
    *,
    width: int,
    dtype: jnp.dtype,
    layer: Int[Array, ""],
) -> Float[Array, "T width"]:
    """x[r] @ weight[group of row r].T in float32. The rows of no group become zeros.

    Args:
        x: rounded to `dtype` if it has another.
        panels, places: X weights [width, in], each written by `pack`; or those of each layer. The
            weight of a group without rows is not read.
        kinds: of the panels: see `panel_kinds`.
        starts: the rows of group g are `starts[g]:starts[g + 1]`, int32 [X + 1]; the first is 0.
        width: number of rows of each weight.
        dtype: that of x in the products: float32, bfloat16 or float16.
        layer: index of the layer; clipped to its ends.

    Raises:
        ValueError: the panels or their places do not have the shape of such weights.
    """
    check_places(panels, places, width)
    _check_groups(panels, starts)
    stack = one_stack(panels, places)
    return product(x, stack, kinds, layer, starts[1:], width, dtype)


def grouped_quantized_gated_linear(
    x: Float[Array, "T in"],
    panels: UInt8[Array, "*L X bytes"],
    places: Int[Array, "*L X panels 2"],
    bias: Float[Array, "X two_F"] | None,
    kinds: Sequence[PanelKind],
    starts: Int[Array, " starts"],
    *,
    width: int,
    dtype: jnp.dtype,
    layer: Int[Array, ""],
    activation: str = "silu",
    out_dtype: jnp.dtype,
    expand: Expand | None = None,
) -> Float[Array, "T width"]:
    """The gated product by groups: see `grouped_quantized_linear` and `quantized_gated_linear`."""
    check_places(panels, places, PARTS * width, PARTS)
    _check_groups(panels, starts)
    stack = one_stack(panels, places)
    gate = gate_of(bias, activation, out_dtype)._replace(expand=expand)
    return product(x, stack, kinds, layer, starts[1:], width, dtype, gate)


def _check_groups(panels: Array, starts: Array) -> None:
    groups = starts.shape[0] - 1
    if panels.ndim not in (2, 3) or panels.shape[-2] != groups:
        raise ValueError(
            f"panels of {groups} groups must be [{groups}, bytes] or [layers, {groups}, bytes], "
            f"got {panels.shape}"
        )
