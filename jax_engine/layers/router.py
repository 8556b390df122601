"""Routing: which experts each token uses, and how much each of them counts."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layer_spec import RouterSpec
from jax_engine.layers.batch import Batch
from jax_engine.layers.linear import low_rank_of
from jax_engine.operations import device_operations
from jax_engine.operations.whole_vectors import in_whole_vectors
from jax_engine.weights.format import Matrix, WeightFormat, empty_weight
from jax_engine.weights.low_rank import Slots


class Router(nnx.Module):  # type: ignore[misc]
    """Scores the experts for each token, in float32, and chooses the best `top_k`.

    Attributes:
        weight: [*stack, X, E] in float32, stored in a `WeightFormat`.
        bias: [*stack, X], added to the logits, or None.
        selection_bias: [*stack, X], added to the scores for the choice only, or None.
        slots: As in `Linear`.
    """

    slots: Slots | None = None

    def __init__(
        self, spec: RouterSpec, width: int, *, weight_format: WeightFormat, stack: tuple[int, ...]
    ):
        self.spec = spec
        shape = (*stack, spec.num_experts)
        matrix = Matrix((*shape, width), jnp.dtype(jnp.float32))
        self.weight = empty_weight(matrix, weight_format)
        zeros = jnp.zeros(shape, jnp.float32)
        self.bias = nnx.Param(zeros) if spec.bias else None
        self.selection_bias = nnx.Param(zeros) if spec.selection_bias else None

    def __call__(
        self, x: Float[Array, "T E"], batch: Batch, layer: Int[Array, ""]
    ) -> tuple[Int[Array, "T k"], Float[Array, "T k"]]:
        """The experts of each token, and their weights. Of equal scores, the first expert wins."""
        spec, wide = self.spec, x.astype(jnp.float32)
        logits = self.weight.matmul(wide, layer, batch.num_tokens, out_dtype=jnp.dtype(jnp.float32))
        low = low_rank_of(self.slots, wide, batch.adapters, layer)
        if low is not None:
            logits = low.added_to(logits)
        if self.bias is not None:
            logits = logits + self.bias[...]
        scores = logits
        if spec.scores == "softmax":
            scores = device_operations().softmax(logits)
        elif spec.scores == "sigmoid":
            scores = in_whole_vectors(jax.nn.sigmoid, logits)
        choice = scores if self.selection_bias is None else scores + self.selection_bias[...]
        if spec.groups > 1:
            choice = _of_best_groups(choice, spec)
        experts = jax.lax.top_k(choice, spec.top_k)[1]
        weights = jnp.take_along_axis(scores, experts, axis=-1)
        if spec.scores == "chosen_softmax":
            weights = device_operations().softmax(weights)
        if spec.renormalise:
            weights = weights / (in_order(weights, axis=-1)[..., None] + 1e-20)
        return experts, weights * spec.scaling


def in_order(x: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """The sum along a short axis, from its first number on.

    The order of a reduction depends on the shape.
    """
    first, *rest = jnp.unstack(x, axis=axis)
    return functools.reduce(jnp.add, rest, first)


def _of_best_groups(choice: Float[Array, "T X"], spec: RouterSpec) -> Float[Array, "T X"]:
    """Minus infinity for experts outside of each token's best groups (DeepSeek V2, V3)."""
    (tokens, experts), groups = choice.shape, spec.groups
    grouped = choice.reshape(tokens, groups, experts // groups)
    best = jax.lax.top_k(grouped, min(spec.judged, experts // groups))[0]
    best = in_order(best, axis=-1)
    chosen = jax.lax.top_k(best, spec.top_groups)[1]
    eligible = jnp.zeros((tokens, groups), bool).at[jnp.arange(tokens)[:, None], chosen].set(True)
    return jnp.where(eligible[:, :, None], grouped, -jnp.inf).reshape(tokens, experts)
