"""Layer normalisation on a CPU (Ba, Kiros and Hinton, 2016)."""

from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from cpu_kernels.norms.kernel import norm


def add_layer_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    bias: Float[Array, " E"] | None,
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """(s - mean(s)) / sqrt(var(s) + eps) * weight + bias and s, where s = x + residual.

    Both results have residual's dtype. The variance is around the mean, divided by E.

    Args:
        x: float32, as products return it.
        residual: float32 or bfloat16.
        weight: factor of each column, float32.
        bias: term of each column, float32; None adds nothing.
        num_rows: number of rows to compute; the others become zeros.
        eps: added to the variance.
    """
    return norm(x, residual, weight, bias, num_rows, eps=eps, centred=True, dtype=residual.dtype)


def layer_norm(
    x: Float[Array, "T E"],
    weight: Float[Array, " E"],
    bias: Float[Array, " E"] | None,
    num_rows: Int[Array, ""],
    *,
    eps: float,
    dtype: DTypeLike,
) -> Float[Array, "T E"]:
    """The norm of x alone in `dtype`: float32 or bfloat16. See `add_layer_norm`."""
    return norm(x, None, weight, bias, num_rows, eps=eps, centred=True, dtype=dtype)[0]
