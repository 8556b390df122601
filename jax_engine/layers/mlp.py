"""The gated feed-forward network of Llama (SwiGLU)."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.linear import Linear


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
        """Of `num_tokens` tokens; the others are padding."""
        with jax.named_scope("gate_up"):
            gate, up = jnp.split(self.gate_up(x, layer, num_tokens), 2, axis=-1)
            hidden = (jax.nn.silu(gate) * up).astype(x.dtype)
        with jax.named_scope("down"):
            return self.down(hidden, layer, num_tokens)
