"""Feed-forward networks: gated as in Llama (SwiGLU), or plain as in GPT-2."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.batch import Batch
from jax_engine.layers.linear import Linear
from jax_engine.model_spec import Activation, MlpSpec
from jax_engine.operations.equal_bits import in_whole_vectors
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


def xielu(x: Float[Array, "T F"], numbers: Float[Array, " 4"]) -> Float[Array, "T F"]:
    """xIELU (Huang and Schlag, 2024), in float32.

    a x^2 + b x for positive x, and (e^min(x, eps) - 1 - x) c + b x for others.

    Args:
        numbers: The learned ones: softplus of the first is a; c is b more than that of the second;
            then b, and eps, a negative number close to 0.
    """
    positive, negative, b, eps = jnp.unstack(numbers)
    a, c = jax.nn.softplus(positive), b + jax.nn.softplus(negative)

    def bent(x: Array) -> Array:
        below = jnp.expm1(jnp.minimum(x, eps)) - x
        return jnp.where(x > 0, a * x * x, c * below) + b * x

    return in_whole_vectors(bent, x.astype(jnp.float32))


class Mlp(nnx.Module):  # type: ignore[misc]
    """down(activation(gate(x)) * up(x)), or down(activation(up(x))).

    Attributes:
        gate_up: Weight [2F, E] for each layer: the gate's rows, then those of up; if gated.
        up: Weight [F, E] for each layer, if plain.
        down: Weight [E, F] for each layer.
        xielu: [*stack, 4] in float32, the learned numbers of `xielu`, or None.
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
        elif spec.activation == "xielu":
            self.up = Linear(width, spec.width, **options)
        else:
            self.up = ActivatedLinear(width, spec.width, activation=spec.activation, **options)
        learned = spec.activation == "xielu"
        self.xielu = nnx.Param(jnp.zeros((*stack, 4), jnp.float32)) if learned else None
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
            if self.xielu is not None:
                hidden = xielu(hidden, self.xielu[...]).astype(x.dtype)
        with jax.named_scope("down"):
            return self.down(hidden, batch, layer)
