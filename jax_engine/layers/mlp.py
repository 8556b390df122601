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
        weight: [*stack, 2F, E], stored in a `WeightFormat`: the gate's rows, then those of up.
        bias: [*stack, 2F], or None.
    """

    gated = True

    def __call__(  # type: ignore[override]
        self,
        x: Float[Array, "T E"],
        layer: Int[Array, ""],
        num_tokens: Int[Array, ""] | None,
    ) -> Float[Array, "T F"]:
        """The result in x's dtype, rounded once. `Linear` documents the arguments."""
        bias = None if self.bias is None else self.bias[...]
        return self.weight.gated_matmul(x, bias, layer, num_tokens)


class GatedMLP(nnx.Module):  # type: ignore[misc]
    """down(silu(gate(x)) * up(x)).

    Attributes:
        gate_up: Weight [2F, E] for each layer: the gate's rows, then those of up.
        down: Weight [E, F] for each layer.
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
        """Applies the MLP to the first `num_tokens` tokens (None: all). The others are padding."""
        with jax.named_scope("gate_up"):
            hidden = self.gate_up(x, layer, num_tokens)
        with jax.named_scope("down"):
            return self.down(hidden, layer, num_tokens)
