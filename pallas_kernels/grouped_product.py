"""Products of rows that lie in groups, each with its own weight: the experts of a mixture."""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.backends import Backend, choose
from pallas_kernels.device import interpreting, target_device
from pallas_kernels.ranges import cumulative, owner

# On a CPU: rows of a group that are multiplied at once, and the fewest rows of a weight that XLA
# multiplies as it does more.
BLOCK, LEAST = 16, 16
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
    if str(target_device().platform) == "cpu":
        return _by_blocks(x, weights, starts, dtype)
    out: Array = lax.ragged_dot_general(
        x, weights, jnp.diff(starts), BY_GROUP, preferred_element_type=dtype
    )
    return out


def _by_blocks(
    x: Float[Array, "T in"],
    weights: Float[Array, "X out in"],
    starts: Int[Array, " starts"],
    dtype: jnp.dtype,
) -> Float[Array, "T out"]:
    """Blocks of BLOCK rows of a group, one after another.

    XLA's own product adds over all groups in one long sum, whose order depends on the number of
    rows, and multiplies every row by every group's weight.
    """
    blocks = cumulative(-(-jnp.diff(starts) // BLOCK))
    rows = jnp.pad(x, ((0, BLOCK), (0, 0)))  # the last block may extend beyond the last row
    place = jnp.arange(BLOCK, dtype=jnp.int32)[:, None]

    def multiply(i: Array, out: Array) -> Array:
        group = owner(blocks, i)
        first = starts[group] + (i - blocks[group]) * BLOCK
        block = lax.dynamic_slice_in_dim(rows, first, BLOCK)
        weight = lax.dynamic_index_in_dim(weights, group, keepdims=False)
        few = ((0, max(0, LEAST - len(weight))), (0, 0))
        found = lax.dot_general(
            block, jnp.pad(weight, few), (((1,), (1,)), ((), ())), preferred_element_type=dtype
        )[:, : len(weight)]
        old = lax.dynamic_slice_in_dim(out, first, BLOCK)
        new = jnp.where(place < starts[group + 1] - first, found, old)
        return lax.dynamic_update_slice_in_dim(out, new, first, 0)

    zeros = jnp.zeros((len(rows), weights.shape[1]), dtype)
    out: Array = lax.fori_loop(0, blocks[-1], multiply, zeros)
    return out[: len(x)]


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
