"""The gated feed-forward network of Llama (SwiGLU)."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jax_engine.layers.linear import Linear


class GatedMLP(nnx.Module):
    """down(silu(gate(x)) * up(x)), gate and up in one product.

    Attributes:
        gate_up: [*stack, 2F, E]: the gate's rows, then those of up.
        down: [*stack, E, F].
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
        self.gate_up = Linear(
            hidden_size, 2 * intermediate_size, bias=bias, dtype=dtype, stack=stack
        )
        self.down = Linear(intermediate_size, hidden_size, bias=bias, dtype=dtype, stack=stack)

    def __call__(self, x: Float[Array, "T E"]) -> Float[Array, "T E"]:
        gate, up = jnp.split(self.gate_up(x), 2, axis=-1)
        return self.down(jax.nn.silu(gate) * up)
