"""The gated feed-forward network of Llama (SwiGLU)."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.linear import Linear
from jax_engine.model_spec import MlpSpec
from jax_engine.weights.format import WeightFormat


class GatedLinear(Linear):
    """silu(gate(x)) * up(x), gate and up in one product.

    Attributes:
        weight: [*stack, 2F, E], in a format: the gate's rows, then those of up.
        bias: [*stack, 2F], or None.
    """

    gated = True

    def __call__(  # type: ignore[override]
        self,
        x: Float[Array, "T E"],
        layer: Int[Array, ""],
        num_tokens: Int[Array, ""] | None,
    ) -> Float[Array, "T F"]:
        """In x's dtype, rounded once. Arguments as of `Linear`."""
        bias = None if self.bias is None else self.bias[...]
        return self.weight.gated_matmul(x, bias, layer, num_tokens)


class GatedMLP(nnx.Module):  # type: ignore[misc]
    """down(silu(gate(x)) * up(x)).

    Attributes:
        gate_up: weight [2F, E] a layer: the gate's rows, then those of up.
        down: weight [E, F] a layer.
    """

    def __init__(
        self,
        spec: MlpSpec,
        width: int,
        *,
        dtype: jnp.dtype,
        weight_format: WeightFormat,
        stack: tuple[int, ...],
    ):
        options: dict[str, Any] = {"bias": spec.bias, "dtype": dtype, "stack": stack}
        options["weight_format"] = weight_format
        self.gate_up = GatedLinear(width, 2 * spec.width, **options)
        self.down = Linear(spec.width, width, **options)

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
