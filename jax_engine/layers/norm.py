"""Root-mean-square normalisation, and the residual stream that it reads."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.weights.choose import on_numba


class RMSNorm(nnx.Module):  # type: ignore[misc]
    """s / rms(s) * weight over the last axis, with s = x + residual.

    Attributes:
        weight: [*stack, E], the scale.
    """

    def __init__(self, size: int, *, eps: float, dtype: jnp.dtype, stack: tuple[int, ...] = ()):
        self.eps = eps
        self.weight = nnx.Param(jnp.ones((*stack, size), dtype))

    @jax.named_scope("norm")
    def __call__(
        self, x: Float[Array, "T E"], residual: Float[Array, "T E"], num_tokens: Int[Array, ""]
    ) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
        """The norm and s, both in residual's dtype; computed in float32.

        Args:
            x: what the part before returned; on a CPU float32.
            num_tokens: how many are not padding; on a CPU the others cost nothing.
        """
        weight = self.weight[...]
        if on_numba(residual.dtype):
            from cpu_kernels.rms_norm import add_rms_norm

            wide = x.astype(jnp.float32)
            return add_rms_norm(wide, residual, weight, num_tokens, eps=self.eps)
        residual = (x + residual).astype(residual.dtype)
        wide = residual.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + self.eps)
        normed: Array = wide * scale * weight.astype(jnp.float32)
        return normed.astype(residual.dtype), residual
