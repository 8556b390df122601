"""Root-mean-square normalisation."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float


class RMSNorm(nnx.Module):  # type: ignore[misc]
    """x / rms(x) * weight over the last axis, computed in float32, returned in x's dtype.

    Attributes:
        weight: [*stack, E], the scale.
    """

    def __init__(self, size: int, *, eps: float, dtype: jnp.dtype, stack: tuple[int, ...] = ()):
        self.eps = eps
        self.weight = nnx.Param(jnp.ones((*stack, size), dtype))

    @jax.named_scope("norm")
    def __call__(self, x: Float[Array, "T E"]) -> Float[Array, "T E"]:
        wide = x.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + self.eps)
        normed: Array = wide * scale * self.weight[...].astype(jnp.float32)
        return normed.astype(x.dtype)
