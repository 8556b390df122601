"""Products of rows that lie in groups, each with its own weight: the experts of a mixture."""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.backends import Backend, choose
from pallas_kernels.device import interpreting

# x [T, in], sorted by group, with weights [X, out, in].
BY_GROUP = lax.RaggedDotDimensionNumbers(  # type: ignore[no-untyped-call]
    dot_dimension_numbers=(((1,), (2,)), ((), ())),
    lhs_ragged_dimensions=(0,),
    rhs_group_dimensions=(0,),
)


def grouped_product(
    x: Float[Array, "T in"],
    weights: Float[Array, "X out in"],
    starts: Int[Array, " starts"],
    *,
    dtype: jnp.dtype,
    backend: Backend = None,
) -> Float[Array, "T out"]:
    """x[r] @ weights[group of row r].T, accumulated in float32 and returned in `dtype`.

    The rows of group g are `starts[g]:starts[g + 1]`; the first start is 0. The rows of no group,
    at the end, become zeros.

    Raises:
        ValueError: the shapes do not match, or the backend does not support the call.
    """
    if weights.ndim != 3 or x.shape[1] != weights.shape[2] or len(starts) != len(weights) + 1:
        raise ValueError(
            "expected x [T, in], weights [X, out, in] and X + 1 starts: "
            f"{x.shape=} {weights.shape=} {starts.shape=}"
        )
    name = choose(backend, lambda name: _missing(name, x, weights, dtype))
    if name == "mosaic":
        from pallas_kernels.mosaic import grouped_product as mosaic

        return mosaic.multiply(x, weights, starts, interpret=interpreting())
    out: Array = lax.ragged_dot_general(
        x, weights, jnp.diff(starts), BY_GROUP, preferred_element_type=dtype
    )
    return out


def _missing(name: str, x: Any, weights: Any, dtype: jnp.dtype) -> str | None:
    """Why a backend does not support a call, or None if it does."""
    if name == "xla":
        return None
    if name != "mosaic":
        return "this operation"
    from pallas_kernels.mosaic import grouped_product as mosaic

    if dtype != x.dtype:
        return f"a result of {dtype} for x of {x.dtype}"
    return mosaic.missing(x, weights)
