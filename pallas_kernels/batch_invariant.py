"""Operations whose result for a row never depends on the step's other rows, or on their number.

On a GPU XLA chooses kernels for products and sums by the number of rows, and kernels add in
different orders. Those here are of the backend "triton", compiled for every GPU from sm_80 on and
interpreted on a CPU. Attention has the same property if `make_metadata` gets `batch_invariant`.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.device import interpreting
from pallas_kernels.triton import product, row_sums

DTYPES = ("float32", "bfloat16", "float16")


def matmul(
    x: Float[Array, "T in"],
    weights: Float[Array, "L out in"],
    layer: Int[Array, ""] | int,
    *,
    dtype: Any,
) -> Float[Array, "T out"]:
    """x @ weights[layer].T, accumulated in float32 and returned in `dtype`.

    Args:
        x: rows in the dtype of the weights.
        weights: the weights of a stack of layers, which is read in place.
        layer: which one; may be traced.
        dtype: the result's dtype.

    Raises:
        ValueError: the shapes do not match, or the dtypes differ or are not among DTYPES.
    """
    if x.ndim != 2 or weights.ndim != 3 or x.shape[1] != weights.shape[2] or 0 in x.shape:
        raise ValueError(f"expected x [T, in], weights [L, out, in]: {x.shape=} {weights.shape=}")
    if x.dtype != weights.dtype or x.dtype.name not in DTYPES:
        raise ValueError(
            f"expected x and weights of one dtype, of {', '.join(DTYPES)}: {x.dtype=} "
            f"{weights.dtype=}"
        )
    layer = jnp.asarray(layer, jnp.int32)
    dtype = jnp.dtype(dtype)
    out: Array = product.multiply(x, weights, layer, dtype=dtype, interpret=interpreting())
    return out


def norm(
    x: Float[Array, "R E"],
    weight: Float[Array, "W E"],
    bias: Float[Array, "W E"] | None = None,
    *,
    residual: Float[Array, "R E"] | None = None,
    kind: row_sums.Kind,
    eps: float,
    dtype: Any,
) -> tuple[Float[Array, "R E"], Float[Array, "R E"] | None]:
    """The norm of s = x + residual in `dtype`, computed in float32; and s in residual's dtype.

    Args:
        x: rows.
        weight: scales; row r has those of r modulo W.
        bias: the same, added; or None.
        residual: added to x before; None: s is x, and is not returned.
        kind: "rms", or "layer": after its mean is 0.
        eps: added to the mean of the squares.
        dtype: the result's dtype.

    Raises:
        ValueError: the shapes do not match.
    """
    others = [one.shape for one in (residual,) if one is not None]
    scales = [one.shape for one in (weight, bias) if one is not None]
    bad = any(one != x.shape for one in others)
    if bad or any(one != (len(weight), x.shape[1]) for one in scales) or len(x) % len(weight):
        raise ValueError(
            f"expected x and residual [R, E], weight and bias [W, E], R a multiple of W: "
            f"{x.shape=} {others=} {scales=}"
        )
    both: tuple[Array, Array | None] = row_sums.norm(
        x, residual, weight, bias, kind=kind, eps=eps, dtype=jnp.dtype(dtype),
        interpret=interpreting(),
    )  # fmt: skip
    return both


def logsumexp(x: Float[Array, "R V"]) -> Float[Array, " R"]:
    """The logarithm of each row's sum of exp(x), in float32."""
    found: Array = row_sums.logsumexp(x, interpret=interpreting())
    return found
