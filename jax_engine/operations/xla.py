"""Operations that XLA compiles for every device."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_engine.sampling.draw import draw as draw


def add_rms_norm(
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    weight: Float[Array, " E"],
    num_rows: Int[Array, ""],
    *,
    eps: float,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """s / rms(s) * weight and s, where s = x + residual, in residual's dtype.

    The norm is computed in float32.

    Args:
        x: what the part before returned.
        num_rows: how many rows are wanted. XLA computes all of them.
    """
    del num_rows
    residual = (x + residual).astype(residual.dtype)
    wide = residual.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + eps)
    normed: Array = wide * scale * weight.astype(jnp.float32)
    return normed.astype(residual.dtype), residual
