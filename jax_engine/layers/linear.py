"""Matrix products. Where quantised weights plug in."""

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array, Float

CONTRACT_LAST = (((1,), (1,)), ((), ()))  # x [T, in] with weight [out, in]


class Linear(nnx.Module):
    """x @ weight.T + bias.

    Weights are kept [out, in] and contracted on the last axis: with one row in x (decoding) that
    reads each weight once and in order, which on a CPU is several times faster than [in, out].

    Attributes:
        weight: [*stack, out, in]; a stack axis must be sliced off before the call.
        bias: [*stack, out], or None.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        *,
        bias: bool = False,
        dtype: jnp.dtype,
        stack: tuple[int, ...] = (),
    ):
        self.weight = nnx.Param(jnp.zeros((*stack, out_size, in_size), dtype))
        self.bias = nnx.Param(jnp.zeros((*stack, out_size), dtype)) if bias else None

    def __call__(
        self, x: Float[Array, "T in"], out_dtype: jnp.dtype | None = None
    ) -> Float[Array, "T out"]:
        """Product in x's dtype, or accumulated and returned in `out_dtype`."""
        out = lax.dot_general(
            x, self.weight[...], CONTRACT_LAST, preferred_element_type=out_dtype or x.dtype
        )
        return out if self.bias is None else out + self.bias[...].astype(out.dtype)
