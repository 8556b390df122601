"""The gated feed-forward network of Llama (SwiGLU)."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.linear import Linear, on_numba


def silu_and_mul(
    gate_up: Float[Array, "T two_F"], dtype: jnp.dtype, num_tokens: Int[Array, ""] | None
) -> Float[Array, "T F"]:
    """silu of the first half of the columns times the second, rounded to `dtype` once."""
    if on_numba(dtype):
        from pallas_kernels.numba import silu

        count = jnp.int32(gate_up.shape[0]) if num_tokens is None else num_tokens
        return silu.silu_and_mul(gate_up.astype(jnp.float32), count, dtype=dtype)
    gate, up = jnp.split(gate_up, 2, axis=-1)
    return (jax.nn.silu(gate) * up).astype(dtype)


class GatedMLP(nnx.Module):  # type: ignore[misc]
    """down(silu(gate(x)) * up(x)), gate and up in one product.

    Attributes:
        gate_up: weight [2F, E] a layer: the gate's rows, then those of up.
        down: weight [E, F] a layer.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        bias: bool,
        dtype: jnp.dtype,
        stack: tuple[int, ...] = (),
    ):
        linear = functools.partial(Linear, bias=bias, dtype=dtype, stack=stack)
        self.gate_up = linear(hidden_size, 2 * intermediate_size)
        self.down = linear(intermediate_size, hidden_size)

    def __call__(
        self,
        x: Float[Array, "T E"],
        layer: Int[Array, ""] | None = None,
        num_tokens: Int[Array, ""] | None = None,
    ) -> Float[Array, "T E"]:
        """Of `num_tokens` tokens; the others are padding. None: of all."""
        with jax.named_scope("gate_up"):
            hidden = silu_and_mul(self.gate_up(x, layer, num_tokens), x.dtype, num_tokens)
        with jax.named_scope("down"):
            return self.down(hidden, layer, num_tokens)
