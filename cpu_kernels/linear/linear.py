"""Products with weights in panels: x @ weight.T, and a gated network's first product with its gate.

A kernel receives a whole stack of layers and the index of one, so nothing is copied. Rows of x may
lie in groups, each with a weight of its own: the experts of a mixture. One call multiplies all
groups.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int

from cpu_kernels.linear.gates import ACTIVATIONS, PARTS
from cpu_kernels.linear.product_kernel import PLAIN
from cpu_kernels.linear.weights import Weights
from cpu_kernels.low_rank.gate import Expand, operands_of


class Gate(NamedTuple):
    """What becomes of products with gate and up.

    Attributes:
        bias: [groups * 2 * width] in float32, or empty.
        activation: its index in `ACTIVATIONS`.
        dtype: the result's dtype.
        expand: what adapters add to the products before the bias; None adds nothing.
    """

    bias: Array
    activation: int
    dtype: jnp.dtype
    expand: Expand | None


def linear(
    x: Float[Array, "T in"],
    weight: Weights,
    *,
    width: int,
    layer: Int[Array, ""] | None = None,
    num_rows: Int[Array, ""] | None = None,
) -> Float32[Array, "T width"]:
    """x @ weight.T, for a weight or one layer of a stack of weights.

    Args:
        x: rounded as the kind of weight says.
        weight: [width, in], or a stack.
        width: number of rows of the weight.
        layer: index into the stack, int32; clipped to its ends.
        num_rows: number of rows of x to multiply, int32; the result has zeros for the others,
            so padding costs nothing.

    Raises:
        ValueError: the panels are not those of a weight [width, in].
    """
    weight.check(width, x.shape[1], 1)
    index = jnp.zeros((), jnp.int32) if layer is None else layer
    count = jnp.int32(x.shape[0]) if num_rows is None else num_rows
    return _product(x, weight, index, count.reshape(1), width)


def grouped_linear(
    x: Float[Array, "T in"],
    weight: Weights,
    starts: Int[Array, " starts"],
    *,
    width: int,
    layer: Int[Array, ""],
) -> Float32[Array, "T width"]:
    """x[r] @ weight[group of row r].T. The rows of no group become zeros.

    Args:
        weight: X weights [width, in]; or those of each layer. The weight of a group without rows is
            not read.
        starts: the rows of group g are `starts[g]:starts[g + 1]`, int32 [X + 1]; the first is 0.
        layer: index of the layer; clipped to its ends.

    Raises:
        ValueError: the panels are not those of such weights.
    """
    weight.check(width, x.shape[1], 1)
    _check_groups(weight, starts)
    return _product(x, weight, layer, starts[1:], width)


def gated_linear(
    x: Float[Array, "T in"],
    weight: Weights,
    bias: Float[Array, " two_F"] | None = None,
    *,
    width: int,
    layer: Int[Array, ""],
    num_rows: Int[Array, ""],
    activation: str = "silu",
    dtype: jnp.dtype,
    expand: Expand | None = None,
) -> Float[Array, "T width"]:
    """activation(x @ gate.T) * (x @ up.T), rounded once to `dtype`.

    Args:
        x, layer, num_rows: as in `linear`.
        weight: [2 * width, in], the rows of gate and then those of up, packed in two parts; or a
            stack of such weights.
        bias: added to the products before the gate; None adds nothing.
        width: F, the number of columns of gate and of up.
        activation: one of `ACTIVATIONS`.
        dtype: the result's dtype.
        expand: what adapters add to the products before the bias; None adds nothing.

    Raises:
        ValueError: the panels are not those of such a weight.
    """
    weight.check(PARTS * width, x.shape[1], PARTS)
    gate = _gate_of(bias, activation, dtype, expand)
    return _product(x, weight, layer, num_rows.reshape(1), width, gate)


def grouped_gated_linear(
    x: Float[Array, "T in"],
    weight: Weights,
    bias: Float[Array, "X two_F"] | None,
    starts: Int[Array, " starts"],
    *,
    width: int,
    layer: Int[Array, ""],
    activation: str = "silu",
    dtype: jnp.dtype,
    expand: Expand | None = None,
) -> Float[Array, "T width"]:
    """The gated product by groups: see `grouped_linear` and `gated_linear`."""
    weight.check(PARTS * width, x.shape[1], PARTS)
    _check_groups(weight, starts)
    gate = _gate_of(bias, activation, dtype, expand)
    return _product(x, weight, layer, starts[1:], width, gate)


def written(dtype: jnp.dtype) -> jnp.dtype:
    """The dtype in which a kernel writes a result: float16 is rounded from float32 afterwards."""
    return jnp.dtype(jnp.float32) if dtype == jnp.float16 else dtype


def _check_groups(weight: Weights, starts: Array) -> None:
    """Refuses panels that are not those of a weight for each group, or of layers of them."""
    groups, stack = starts.shape[0] - 1, weight.stack
    if len(stack) not in (1, 2) or stack[-1] != groups:
        raise ValueError(
            f"panels of {groups} groups must be [{groups}, ...] or [layers, {groups}, ...], "
            f"got {weight.panels.shape}"
        )


def _gate_of(bias: Array | None, activation: str, dtype: jnp.dtype, expand: Expand | None) -> Gate:
    added = jnp.zeros(0) if bias is None else bias.astype(jnp.float32).reshape(-1)
    return Gate(added, ACTIVATIONS.index(activation), dtype, expand)


def _product(
    x: Float[Array, "T in"],
    weight: Weights,
    layer: Int[Array, ""],
    ends: Int[Array, " groups"],
    width: int,
    gate: Gate | None = None,
) -> Float[Array, "T width"]:
    """The kernel: each group's rows by its weight in the layer."""
    dtype = jnp.dtype(jnp.float32) if gate is None else gate.dtype
    result = jax.ShapeDtypeStruct((x.shape[0], width), written(dtype))
    call = jax.ffi.ffi_call(weight.kernel, (result, *weight.results(x)))
    operands = [*weight.operands(x, ends), layer, ends]
    if gate is None:
        operands.append(jnp.int32(PLAIN))
    else:
        operands += [jnp.int32(gate.activation), gate.bias, *operands_of(gate.expand)]
    out: Array = call(*operands)[0]
    return out.astype(dtype)
