"""A gated network's first product and its gate: activation(x @ gate.T) * (x @ up.T)."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from cpu_kernels.linear.gated_linear import PARTS
from cpu_kernels.linear.gates import ACTIVATIONS
from cpu_kernels.low_rank.gate import Expand
from cpu_kernels.quantized.kinds import PanelKind
from cpu_kernels.quantized.linear import Gate, check_places, one_stack, product


def quantized_gated_linear(
    x: Float[Array, "T in"],
    panels: UInt8[Array, "*L bytes"],
    places: Int[Array, "*L panels 2"],
    bias: Float[Array, " two_F"] | None,
    kinds: Sequence[PanelKind],
    *,
    width: int,
    dtype: jnp.dtype,
    layer: Int[Array, ""],
    num_rows: Int[Array, ""],
    activation: str = "silu",
    out_dtype: jnp.dtype,
    expand: Expand | None = None,
) -> Float[Array, "T width"]:
    """activation(x @ gate.T) * (x @ up.T), rounded once to `out_dtype`.

    Args:
        x: rounded to `dtype` if it has another.
        panels, places: the weight [2 * width, in], the rows of gate and then those of up, written
            by `pack` in two parts; or a stack of such weights.
        bias: added to the products before the gate; None adds nothing.
        kinds: of the panels: see `panel_kinds`.
        width: F, the number of columns of gate and of up.
        dtype: that of x in the products: float32, bfloat16 or float16.
        layer: index into the stack; clipped to its ends.
        num_rows: number of rows of x to compute; the result has zeros for the others.
        activation: one of `ACTIVATIONS`.
        out_dtype: of the result.
        expand: what adapters add to the products before the bias; None adds nothing.

    Raises:
        ValueError: the panels or their places do not have the shape of such a weight.
    """
    check_places(panels, places, PARTS * width, PARTS)
    stack = one_stack(panels, places)
    gate = gate_of(bias, activation, out_dtype)._replace(expand=expand)
    return product(x, stack, kinds, layer, num_rows.reshape(1), width, dtype, gate)


def gate_of(bias: Array | None, activation: str, out_dtype: jnp.dtype) -> Gate:
    added = jnp.zeros(0) if bias is None else bias.astype(jnp.float32).reshape(-1)
    return Gate(added, ACTIVATIONS.index(activation), out_dtype)
