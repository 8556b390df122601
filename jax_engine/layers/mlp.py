"""Feed-forward networks: gated as in Llama (SwiGLU), or plain as in GPT-2."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.batch import Batch
from jax_engine.layers.linear import Linear
from jax_engine.model_spec import Activation, MlpSpec
from jax_engine.weights.format import WeightFormat


class ActivatedLinear(Linear):
    """activation(up(x)): the first product of a plain network.

    Attributes:
        weight: [*stack, F, E], stored in a `WeightFormat`.
        bias: [*stack, F], or None.
    """

    def __init__(self, *sizes: int, activation: Activation, **options: Any):
        super().__init__(*sizes, **options)
        self.activation = activation

    def __call__(
        self, x: Float[Array, "T E"], batch: Batch, layer: Int[Array, ""]
    ) -> Float[Array, "T F"]:
        """The result in x's dtype, rounded once. `Linear` documents the arguments."""
        bias = None if self.bias is None else self.bias[...]
        low = self.low_rank(x, batch, layer)
        return self.weight.format.activated_matmul(
            x, self.weight, bias, self.activation, layer, batch.num_tokens, low
        )


class GatedLinear(ActivatedLinear):
    """activation(gate(x)) * up(x), gate and up in one product.

    Attributes:
        weight: [*stack, 2F, E], stored in a `WeightFormat`: the gate's rows, then those of up.
        bias: [*stack, 2F], or None.
    """

    gated = True

    def __call__(
        self, x: Float[Array, "T E"], batch: Batch, layer: Int[Array, ""]
    ) -> Float[Array, "T F"]:
        bias = None if self.bias is None else self.bias[...]
        low = self.low_rank(x, batch, layer)
        return self.weight.format.gated_matmul(
            x, self.weight, bias, self.activation, layer, batch.num_tokens, low
        )


class Mlp(nnx.Module):  # type: ignore[misc]
    """down(activation(gate(x)) * up(x)), or down(activation(up(x))).

    Attributes:
        gate_up: Weight [2F, E] for each layer: the gate's rows, then those of up; if gated.
        up: Weight [F, E] for each layer, if plain.
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
        if spec.gated:
            self.gate_up = GatedLinear(width, 2 * spec.width, activation=spec.activation, **options)
        else:
            self.up = ActivatedLinear(width, spec.width, activation=spec.activation, **options)
        self.gated = spec.gated
        shared: dict[str, Any] = {"shared_by": spec.shared_by, "leaves": spec.leaves}
        shared["whole_rows"] = spec.whole_rows
        self.down = Linear(spec.width, width, **shared, **options)

    def __call__(
        self, x: Float[Array, "T E"], batch: Batch, layer: Int[Array, ""]
    ) -> Float[Array, "T E"]:
        """The network of one layer, applied to each token."""
        with jax.named_scope("gate_up"):
            first = self.gate_up if self.gated else self.up
            hidden = first(x, batch, layer)
        with jax.named_scope("down"):
            return self.down(hidden, batch, layer)
