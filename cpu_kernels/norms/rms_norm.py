"""Root-mean-square normalisation on a CPU (Zhang and Sennrich, 2019)."""

from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from cpu_kernels.norms.kernel import norm


def add_rms_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """s / rms(s) * weight and s, where s = x + residual, in residual's dtype.

    Args:
        x: float32, as products return it.
        residual: float32 or bfloat16; both results have the same dtype.
        weight: factor of each column, float32.
        num_rows: number of rows to compute; the others become zeros.
        eps: added to the mean of squares.
    """
    dtype = residual.dtype
    return norm(x, residual, weight, None, num_rows, eps=eps, centred=False, dtype=dtype)


def rms_norm(
    x: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
    dtype: DTypeLike,
) -> Float[Array, "T E"]:
    """x / rms(x) * weight in `dtype`: float32 or bfloat16. See `add_rms_norm`."""
    return norm(x, None, weight, None, num_rows, eps=eps, centred=False, dtype=dtype)[0]
