"""Root-mean-square normalisation, and the residual stream that it reads."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.operations import operations_for


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
        """Returns the norm and s, both in residual's dtype. See `operations.xla.add_rms_norm`.

        Args:
            num_tokens: How many tokens are not padding.
        """
        operations = operations_for(residual.dtype)
        normed: tuple[Array, Array] = operations.add_rms_norm(
            x, residual, self.weight[...], num_tokens, eps=self.eps
        )
        return normed
