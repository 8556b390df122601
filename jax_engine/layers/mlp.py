"""The gated feed-forward network of Llama (SwiGLU)."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.linear import Linear


class GatedLinear(Linear):
    """silu(gate(x)) * up(x), gate and up in one product.

    Attributes:
        weight: [*stack, 2F, E], the gate's rows, then those of up; on a CPU in panels that take
            turns.
        bias: [*stack, 2F], or None.
    """

    def __call__(  # type: ignore[override]
        self,
        x: Float[Array, "T E"],
        layer: Int[Array, ""],
        num_tokens: Int[Array, ""] | None,
    ) -> Float[Array, "T F"]:
        """In x's dtype, rounded once. Arguments as of `Linear`."""
        if self.weight.in_panels:
            from cpu_kernels.linear.gated_linear import gated_linear

            panels, width = self.weight[...], self.weight.unpacked[-2] // 2
            bias = None if self.bias is None else self.bias[...]
            count = jnp.int32(x.shape[0]) if num_tokens is None else num_tokens
            return gated_linear(
                x, panels, bias, width=width, layer=layer, num_rows=count, dtype=x.dtype
            )
        gate, up = jnp.split(super().__call__(x, layer, num_tokens), 2, axis=-1)
        return (jax.nn.silu(gate) * up).astype(x.dtype)


class GatedMLP(nnx.Module):  # type: ignore[misc]
    """down(silu(gate(x)) * up(x)).

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
        stack: tuple[int, ...],
    ):
        self.gate_up = GatedLinear(
            hidden_size, 2 * intermediate_size, bias=bias, dtype=dtype, stack=stack, parts=2
        )
        self.down = Linear(intermediate_size, hidden_size, bias=bias, dtype=dtype, stack=stack)

    def __call__(
        self,
        x: Float[Array, "T E"],
        layer: Int[Array, ""],
        num_tokens: Int[Array, ""] | None,
    ) -> Float[Array, "T E"]:
        """Of `num_tokens` tokens; the others are padding. None: of all."""
        with jax.named_scope("gate_up"):
            hidden = self.gate_up(x, layer, num_tokens)
        with jax.named_scope("down"):
            return self.down(hidden, layer, num_tokens)
