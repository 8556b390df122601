"""Products of rows that lie in groups, each with its own weight: the experts of a mixture.

They are the kernels of `linear.py` and `gated_linear.py`, in one call for all groups.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cpu_kernels.linear.gated_linear import check_gated_panels, gated_product
from cpu_kernels.linear.linear import check_panels, product
from cpu_kernels.low_rank.gate import Expand


def grouped_linear(
    x: Float[Array, "T in"],
    panels: Float[Array, "*L X panels words columns"],
    starts: Int[Array, " starts"],
    *,
    width: int,
    layer: Int[Array, ""],
) -> Float[Array, "T width"]:
    """x[r] @ weight[group of row r].T in float32. The rows of no group become zeros.

    Args:
        x: rounded to the weights' dtype if it has another.
        panels: X weights [width, in], packed by `pack_panels`; or those of each layer. The weight
            of a group without rows is not read.
        starts: the rows of group g are `starts[g]:starts[g + 1]`, int32 [X + 1]; the first is 0.
        layer: index of the layer; clipped to its ends.

    Raises:
        ValueError: the panels do not have the shape of such weights.
    """
    check_panels(panels, width, x.shape[1])
    return product(x, _weights(panels, starts), layer, starts[1:], width)


def grouped_gated_linear(
    x: Float[Array, "T in"],
    panels: Float[Array, "*L X panels words columns"],
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
    check_gated_panels(panels, width, x.shape[1])
    stack = _weights(panels, starts)
    added = jnp.zeros(0) if bias is None else bias.astype(jnp.float32).reshape(-1)
    return gated_product(x, stack, layer, starts[1:], added, width, activation, dtype, expand)


def _weights(panels: Array, starts: Array) -> Array:
    """The weights of all layers, one after another."""
    groups = starts.shape[0] - 1
    if panels.ndim not in (4, 5) or panels.shape[-4] != groups:
        raise ValueError(
            f"panels of {groups} groups must be [{groups}, ...] or [layers, {groups}, ...], "
            f"got {panels.shape}"
        )
    return panels.reshape(-1, *panels.shape[-3:])
