"""Mixtures of experts: a router, and feed-forward networks of which each token uses a few.

The router chooses which experts each token uses, and how much each of them counts. No token is ever
dropped. The pairs of a token and an expert are sorted by expert, so that one grouped product
multiplies each expert's rows by its own matrix.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.batch import Batch
from jax_engine.layers.linear import Linear, low_rank_of
from jax_engine.layers.mlp import Mlp
from jax_engine.model_spec import ExpertsSpec, RouterSpec
from jax_engine.operations import device_operations
from jax_engine.operations.equal_bits import in_whole_vectors
from jax_engine.parallel.collectives import (
    added,
    in_turn,
    on_first,
    share_of_rows,
    side_by_side,
    this_rank,
)
from jax_engine.weights.format import Matrix, WeightFormat, empty_weight
from jax_engine.weights.low_rank import AdapterRows, LowRank, Slots, rows_that_choose
from pallas_kernels.tree_sum import in_tree


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
        spec = self.spec
        logits = self.weight.format.matmul(
            x.astype(jnp.float32), self.weight, layer, batch.num_tokens,
            out_dtype=jnp.dtype(jnp.float32),
        )  # fmt: skip
        # Kernels for adapters widen x themselves.
        low = low_rank_of(self.slots, x, batch.adapters, layer)
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
        elif spec.scores == "chosen_sigmoid":
            weights = in_whole_vectors(jax.nn.sigmoid, weights)
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


class Sorted(NamedTuple):
    """The pairs of a token and one of its experts, sorted by expert; padding comes last.

    Attributes:
        token: the token of each pair.
        starts: the pairs of expert e are `starts[e]:starts[e + 1]`.
        place: for each token, the places of its pairs.
    """

    token: Int[Array, " pairs"]
    starts: Int[Array, " starts"]
    place: Int[Array, "T k"]


def sort_pairs(experts: Int[Array, "T k"], num_experts: int, num_tokens: Int[Array, ""]) -> Sorted:
    """Sorts the choices of the first `num_tokens` tokens; the others are padding."""
    tokens, top_k = experts.shape
    real = jnp.arange(tokens, dtype=jnp.int32)[:, None] < num_tokens
    flat = jnp.where(real, experts, num_experts).reshape(-1)
    order = jnp.argsort(flat, stable=True).astype(jnp.int32)
    before = flat[:, None] < jnp.arange(num_experts + 1)  # one kernel, where a search is a loop
    starts = before.sum(axis=0, dtype=jnp.int32)
    places = jnp.arange(tokens * top_k, dtype=jnp.int32)
    place = jnp.zeros_like(order).at[order].set(places, mode="promise_in_bounds")
    return Sorted(order // top_k, starts, place.reshape(tokens, top_k))


def of_pairs(
    weights: Float[Array, "T k"], pairs: Sorted, dtype: jnp.dtype
) -> Float[Array, "pairs 1"]:
    """The weight of each pair, in the order of the pairs."""
    flat = weights.astype(dtype).reshape(-1)
    placed = jnp.zeros_like(flat).at[pairs.place.reshape(-1)].set(flat, mode="promise_in_bounds")
    return placed[:, None]


class ExpertLinear(nnx.Module):  # type: ignore[misc]
    """A matrix for each expert.

    Attributes:
        weight: [*stack, X, out, in], stored in a `WeightFormat`.
        bias: [*stack, X, out], or None.
        slots: As in `Linear`; each expert has an A and a B of its own.
    """

    slots: Slots | None = None

    def __init__(
        self,
        num_experts: int,
        in_size: int,
        out_size: int,
        *,
        bias: bool,
        gated: bool = False,
        dtype: jnp.dtype,
        weight_format: WeightFormat,
        stack: tuple[int, ...],
    ):
        matrix = Matrix((*stack, num_experts, out_size, in_size), dtype, gated)
        self.weight = empty_weight(matrix, weight_format)
        self.bias = nnx.Param(jnp.zeros((*stack, num_experts, out_size), dtype)) if bias else None

    def added(self) -> Float[Array, "X out"] | None:
        """The layer's biases."""
        return None if self.bias is None else self.bias[...]

    def low_rank(
        self, x: Float[Array, "pairs in"], rows: AdapterRows | None, layer: Int[Array, ""]
    ) -> LowRank | None:
        """What adapters add to the product; None where the step has none."""
        return low_rank_of(self.slots, x, rows, layer)


class Experts(nnx.Module):  # type: ignore[misc]
    """The sum of the chosen experts' outputs, each times its weight, and of a shared network.

    The weight is a factor of the expert's input in models that say so.

    Attributes:
        gate_up: [2F, E] for each expert of each layer: the gate's rows, then those of up.
        down: [E, F] for each expert of each layer.
        shared: the network that every token uses, or None.
        shared_gate: Linear [1, E] in float32 for each layer, or None.
    """

    def __init__(
        self,
        spec: ExpertsSpec,
        width: int,
        *,
        dtype: jnp.dtype,
        weight_format: WeightFormat,
        stack: tuple[int, ...],
    ):
        self.spec = spec
        matrices: dict[str, Any] = {"dtype": dtype, "weight_format": weight_format, "stack": stack}
        count, expert, shared = spec.held, spec.expert, spec.shared
        self.router = Router(spec.router, width, weight_format=weight_format, stack=stack)
        bias = expert.bias
        self.gate_up = ExpertLinear(
            count, width, 2 * expert.width, bias=bias, gated=True, **matrices
        )
        shared_by, rows, columns = expert.shared_by, width, expert.width
        self.whole_rows = expert.whole_rows and shared_by > 1  # as in `Linear`
        if self.whole_rows:
            rows, columns = share_of_rows(width, shared_by), expert.width * shared_by
        self.down = ExpertLinear(count, columns, rows, bias=bias, **matrices)
        self.shared = None if shared is None else Mlp(shared, width, **matrices)
        exact = matrices | {"dtype": jnp.dtype(jnp.float32)}
        self.shared_gate = Linear(width, 1, **exact) if spec.shared_gate else None

    def __call__(
        self, x: Float[Array, "T E"], batch: Batch, layer: Int[Array, ""]
    ) -> Float[Array, "T E"]:
        """The networks of one layer, applied to each token."""
        with jax.named_scope("router"):
            experts, weights = self.router(x, batch, layer)
            own = self._held(experts)
            pairs = sort_pairs(own, self.spec.held, batch.num_tokens)
        with jax.named_scope("experts"):
            rows, activation = x[pairs.token], self.spec.expert.activation
            if self.spec.scaled_input:
                rows, weights = rows * of_pairs(weights, pairs, x.dtype), jnp.ones_like(weights)
            adapted = self._adapted(pairs, batch)
            low = self.gate_up.low_rank(rows, adapted, layer)
            hidden = self.gate_up.weight.format.grouped_gated_matmul(
                rows,
                self.gate_up.weight,
                self.gate_up.added(),
                activation,
                pairs.starts,
                layer,
                low,
            )
            shared_by, bias = self.spec.shared_by, self.down.added()
            if self.whole_rows:
                hidden = side_by_side(hidden, self.down.weight.matrix.shape[-1], shared_by)
            else:
                bias = on_first(bias, self.spec.expert.shared_by)
            each = self.down.weight.format.grouped_matmul(
                hidden, self.down.weight, bias, pairs.starts, layer
            )
            low = self.down.low_rank(hidden, adapted, layer)
            if low is not None:
                each = low.added_to(each)
            weighted = each[pairs.place] * weights.astype(each.dtype)[..., None]
            total = self._sum(weighted, own)
            if self.whole_rows:
                out = side_by_side(total, x.shape[1], shared_by)
            else:
                out = added(total, shared_by)
        if self.shared is not None:
            with jax.named_scope("shared"):
                out = out + self._shared(in_turn(x, out, shared_by), batch, layer)
        return out

    def _held(self, experts: Int[Array, "T k"]) -> Int[Array, "T k"]:
        """The numbers of chosen experts among those of this device; `spec.held` of others."""
        count = self.spec.held
        if self.spec.dealt_to == 1:
            return experts
        own = experts - this_rank() * count
        return jnp.where((own >= 0) & (own < count), own, count)

    def _sum(self, weighted: Float[Array, "T k E"], own: Int[Array, "T k"]) -> Float[Array, "T E"]:
        """The sum of the outputs of this device's experts."""
        if self.spec.leaves == 1 == self.spec.dealt_to:
            return in_order(weighted, axis=1)
        leaf = (own * self.spec.leaves // self.spec.held)[..., None]  # one more: of others
        parts = (jnp.where(leaf == one, weighted, 0) for one in range(self.spec.leaves))
        return in_tree([in_order(part, axis=1) for part in parts])

    def _adapted(self, pairs: Sorted, batch: Batch) -> AdapterRows | None:
        """Which pairs have which adapter of their expert; None where the step has none."""
        if self.gate_up.slots is None:
            return None
        assert batch.adapters is not None
        place = jnp.arange(len(pairs.token), dtype=jnp.int32)
        expert = (place[:, None] >= pairs.starts[1:]).sum(axis=1, dtype=jnp.int32)
        layout = self.gate_up.slots.layout
        return rows_that_choose(batch.adapters, pairs.token, expert, layout)

    def _shared(
        self, x: Float[Array, "T E"], batch: Batch, layer: Int[Array, ""]
    ) -> Float[Array, "T E"]:
        assert self.shared is not None
        out = self.shared(x, batch, layer)
        if self.shared_gate is None:
            return out
        gate = self.shared_gate(x.astype(jnp.float32), batch, layer)
        return out * in_whole_vectors(jax.nn.sigmoid, gate).astype(out.dtype)
