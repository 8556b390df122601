"""The one decoder of this engine, which is its encoder, too, built from a specification.

Layers run in `lax.scan`, so the cost of compilation does not grow with depth. A group of layers
is one scan over the repetitions of its pattern (`jax_engine/model_spec.py`): all weights at one
place of a pattern have a leading axis, the repetitions. The scan slices norms and biases. A matrix
is sliced, or passed whole with the layer's index, as its format says. The KV cache is the carry of
the scans and is indexed by layer: it is updated in place and never copied.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Shaped

from jax_engine.layers.attention import Attention, LayerNumbers
from jax_engine.layers.batch import Batch
from jax_engine.layers.experts import Experts
from jax_engine.layers.latent_attention import LatentAttention
from jax_engine.layers.linear import Embedding, Linear
from jax_engine.layers.mlp import Mlp
from jax_engine.layers.norm import Norm
from jax_engine.model_spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerGroup,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    choices,
)
from jax_engine.operations import device_operations
from jax_engine.operations.equal_bits import in_whole_vectors
from jax_engine.parallel.collectives import in_turn, side_by_side
from jax_engine.weights.format import Formats, Weight, WeightFormat
from jax_engine.weights.low_rank import AdapterRows, LowRank, Slots

Carry = tuple[Array, Array, Array]  # the last part's output, the residual before it, the KV cache
Stream = tuple[Float[Array, "T E"], Float[Array, "T E"]]  # the first two: what a stage hands on
Inputs = tuple[Float[Array, "T E"], Bool[Array, " T"]]
EVERYTHING = 2**31 - 1  # the window of a layer that sees all positions, where others have one


class DecoderLayer(nnx.Module):  # type: ignore[misc]
    """Attention and the MLP, with the norms and in the order that a `LayerSpec` gives.

    The next norm adds a part's output to the residual, in one pass over both. With `stack=(n,)`
    the module holds the weights of n layers.
    """

    def __init__(
        self,
        spec: LayerSpec,
        width: int,
        *,
        dtype: jnp.dtype,
        weight_format: WeightFormat,
        stack: tuple[int, ...] = (),
    ):
        self.spec = spec
        matrices: dict[str, Any] = {"dtype": dtype, "weight_format": weight_format, "stack": stack}
        attention = Attention if spec.attention.latent is None else LatentAttention
        self.attention = attention(spec.attention, width, **matrices)
        kind = spec.mlp
        self.mlp = Mlp(kind, width, **matrices) if isinstance(kind, MlpSpec) else None
        self.experts = Experts(kind, width, **matrices) if isinstance(kind, ExpertsSpec) else None
        for name in ("input_norm", "attention_output_norm", "mlp_norm", "mlp_output_norm"):
            norm = getattr(spec, name)
            setattr(self, name, None if norm is None else Norm(norm, width, stack=stack))

    def __call__(self, carry: Carry, batch: Batch, numbers: LayerNumbers) -> Carry:
        x, residual, kv_cache = carry
        network: Any = self.experts if self.mlp is None else self.mlp
        if self.spec.post_norm:
            return self._post_normed(carry, network, batch, numbers)
        hidden, residual = _read(self.input_norm, x, residual, batch)
        x, kv_cache = self.attention(hidden, batch, kv_cache, numbers)
        x = self._output(self.attention_output_norm, x, batch)
        if self.spec.parallel:
            if self.mlp_norm is not None:
                hidden = self.mlp_norm(residual, batch, residual.dtype)
            hidden = in_turn(hidden, x, self.spec.attention.shared_by)
            beside = network(hidden, batch, numbers.layer)
            return x + self._output(self.mlp_output_norm, beside, batch), residual, kv_cache
        hidden, residual = _read(self.mlp_norm, x, residual, batch)
        x = network(hidden, batch, numbers.layer)
        return self._output(self.mlp_output_norm, x, batch), residual, kv_cache

    def _post_normed(
        self, carry: Carry, network: Any, batch: Batch, numbers: LayerNumbers
    ) -> Carry:
        """A layer whose norms are of sums. The stream is x; the residual, zeros, only passes by."""
        x, residual, kv_cache = carry
        assert self.attention_output_norm is not None and self.mlp_output_norm is not None
        hidden = x.astype(residual.dtype)
        x, kv_cache = self.attention(hidden, batch, kv_cache, numbers)
        hidden, _ = self.attention_output_norm.add(x, hidden, batch)
        x = network(hidden, batch, numbers.layer)
        hidden, _ = self.mlp_output_norm.add(x, hidden, batch)
        return hidden.astype(carry[0].dtype), residual, kv_cache

    def _output(
        self, norm: Norm | None, x: Float[Array, "T E"], batch: Batch
    ) -> Float[Array, "T E"]:
        """A part's output as it is added to the residual: normed and scaled, where that is so."""
        if norm is not None:
            x = norm(x, batch, x.dtype)
        return x if self.spec.residual_factor == 1 else x * self.spec.residual_factor


def _read(
    norm: Norm | None,
    x: Float[Array, "T E"],
    residual: Float[Array, "T E"],
    batch: Batch,
) -> tuple[Float[Array, "T E"], Float[Array, "T E"]]:
    """What a part reads of the residual stream, and the stream with x added to it."""
    if norm is not None:
        return norm.add(x, residual, batch)
    residual = (x + residual).astype(residual.dtype)
    return residual, residual


class LayerStack(nnx.Module):  # type: ignore[misc]
    """A group of layers.

    Attributes:
        places: for each place of the pattern, one DecoderLayer that holds all repetitions.
    """

    def __init__(self, group: LayerGroup, width: int, first: int, **matrices: Any):
        self.repeats, self.first = group.repeats, first
        stack = (group.repeats,)
        self.places = nnx.List(
            [DecoderLayer(spec, width, **matrices, stack=stack) for spec in group.pattern]
        )

    def __call__(self, carry: Carry, batch: Batch) -> Carry:
        chosen = [_choices(layer.spec.attention) for layer in self.places]
        graphdef, whole, stacked = nnx.split(self.places, _is_indexed, ...)

        # The number of the repetition is carried: a GPU would copy it out of an array of numbers.
        def pattern(
            carried: tuple[Array, Carry], of_repetition: tuple[Any, Any]
        ) -> tuple[tuple[Array, Carry], None]:
            (index, carry), (sliced, chosen) = carried, of_repetition
            layers = nnx.merge(graphdef, whole, sliced)
            for place, (layer, own) in enumerate(zip(layers, chosen, strict=True)):
                cache_layer = index * len(self.places) + (self.first + place)
                numbers = LayerNumbers(index, cache_layer, *own)
                carry = layer(carry, batch, numbers)
            return (index + 1, carry), None

        carried = jnp.int32(0), carry
        return jax.lax.scan(pattern, carried, (stacked, chosen), length=self.repeats)[0][1]


def _choices(spec: AttentionSpec) -> tuple[Array | None, Array | None]:
    """`rope` and `window` of `LayerNumbers` for all repetitions: an array [repeats], or None."""
    known, ropes, windows = choices(spec.rope), None, None
    if isinstance(spec.rope, tuple) and len(known) > 1:
        ropes = jnp.array([known.index(one) for one in spec.rope], jnp.int32)
    if isinstance(spec.window, tuple):
        windows = jnp.array([one or EVERYTHING for one in spec.window], jnp.int32)
    return ropes, windows


class Decoder(nnx.Module):  # type: ignore[misc]
    """Computes hidden states from token ids over a paged KV cache, and logits from hidden states.

    One of several stages (`jax_engine/parallel/partition.py`) has some of the layers. All but the
    first have no embedding, all but the last no norm and no head.

    Attributes:
        embed: the embedding, or None.
        embed_norm: the norm of the embedding, or None.
        positions: [P, E], the table that is added to the embedding, or None.
        token_types: the table of the types of tokens, which is added, too, or None.
        groups: one LayerStack for each group of the specification.
        lm_head: [V, E], or None if the embedding is also the head.
        tied_slots: What adapters add to such a head, in a step that may have some; else None.
    """

    tied_slots: Slots | None = None

    def __init__(self, spec: ModelSpec, *, dtype: jnp.dtype, formats: Formats):
        self.spec = spec
        matrices: dict[str, Any] = {"dtype": dtype, "weight_format": formats.products}
        table = formats.products if spec.tied else formats.lookup
        begins, ends, shared_by = spec.has_embedding, spec.has_head, spec.shared_by
        embedding = functools.partial(Embedding, spec.vocab_size, spec.width, shared_by=shared_by)
        is_read = begins or (ends and spec.tied)
        self.embed = embedding(dtype=dtype, weight_format=table) if is_read else None
        rows, norm = (spec.learned_positions, spec.embedding_norm) if begins else (None, None)
        lookup: dict[str, Any] = {"dtype": dtype, "weight_format": formats.lookup}
        self.positions = None if rows is None else Embedding(rows, spec.width, **lookup)
        types = spec.token_types if begins else None
        self.token_types = None if types is None else Embedding(types, spec.width, **lookup)
        self.embed_norm = None if norm is None else Norm(norm, spec.width)
        numbers = [spec.numbers(number, 0) for number in range(len(spec.groups))]
        firsts = [one.start - spec.first_layer for one in numbers]
        self.groups = nnx.List(
            [
                LayerStack(group, spec.width, first, **matrices)
                for group, first in zip(spec.groups, firsts, strict=True)
            ]
        )
        self.norm = Norm(spec.norm, spec.width) if ends and spec.norm is not None else None
        head = functools.partial(Linear, spec.width, spec.vocab_share, bias=spec.head_bias)
        has_logits = ends and not (spec.tied or spec.is_encoder)
        self.lm_head = head(**matrices) if has_logits else None

    def __call__(
        self,
        token_ids: Int[Array, " T"],
        batch: Batch,
        kv_cache: Shaped[Array, "L kv N K B D"],
    ) -> tuple[Float[Array, "T E"], Shaped[Array, "L kv N K B D"]]:
        """Normed hidden states of a ragged batch of tokens, and the cache with their K/V."""
        stream, kv_cache = self.run_layers(self.first_stream(token_ids, batch), batch, kv_cache)
        return self.read(stream, batch), kv_cache

    def first_stream(
        self, token_ids: Int[Array, " T"], batch: Batch, inputs: Inputs | None = None
    ) -> Stream:
        """What the first layer reads.

        Args:
            inputs: Vectors in place of those of some tokens, and which tokens these are.
        """
        embedded = self.embedded(token_ids, batch, inputs)
        dtype = self.dtypes(embedded.dtype)[0]
        return embedded.astype(dtype), jnp.zeros_like(embedded)

    def dtypes(self, dtype: jnp.dtype) -> tuple[jnp.dtype, jnp.dtype]:
        """Those of a stream whose residual has this one."""
        return self.groups[0].places[0].attention.o.result_dtype(dtype), dtype

    def run_layers(
        self, stream: Stream, batch: Batch, kv_cache: Shaped[Array, "L kv N K B D"]
    ) -> tuple[Stream, Shaped[Array, "L kv N K B D"]]:
        """What the next layer would read, and the cache with the K/V of these."""
        carry = (*stream, kv_cache)
        for group in self.groups:
            carry = group(carry, batch)
        return carry[:2], carry[2]

    def read(self, stream: Stream, batch: Batch) -> Float[Array, "T E"]:
        """The normed hidden states behind the last layer."""
        return _read(self.norm, *stream, batch)[0]

    @jax.named_scope("embed")
    def embedded(
        self, token_ids: Int[Array, " T"], batch: Batch, inputs: Inputs | None = None
    ) -> Float[Array, "T E"]:
        """The vectors that the first layer reads, in a model or stage with an embedding."""
        assert self.embed is not None, "only the first stage is given token ids"
        embedded = self.embed(token_ids, batch.adapters)
        if not self.spec.scales_inputs:
            embedded = self._scaled(embedded)
        if inputs is not None:
            vectors, given = inputs
            embedded = jnp.where(given[:, None], vectors.astype(embedded.dtype), embedded)
        if self.positions is not None:
            embedded = embedded + self.positions(batch.positions + self.spec.first_position)
        if self.token_types is not None:
            assert batch.token_types is not None, "whoever makes the batch knows the model"
            embedded = embedded + self.token_types(batch.token_types)
        if self.spec.scales_inputs:
            embedded = self._scaled(embedded)
        if self.embed_norm is not None:
            embedded = self.embed_norm(embedded, batch, embedded.dtype)
        return embedded

    def _scaled(self, embedded: Float[Array, "T E"]) -> Float[Array, "T E"]:
        """Rounded to the dtype of the weights, as Gemma does with sqrt(E)."""
        factor = self.spec.embedding_factor
        return embedded if factor == 1 else embedded * jnp.asarray(factor, embedded.dtype)

    @jax.named_scope("head")
    def compute_logits(
        self,
        hidden: Float[Array, "R E"],
        num_rows: Int[Array, ""] | None = None,
        adapters: AdapterRows | None = None,
    ) -> Float[Array, "R V"]:
        """Float32 logits of chosen rows of hidden states; only the first `num_rows` are needed.

        Args:
            adapters: Which of these rows have which adapter.
        """
        head = self.embed if self.lm_head is None else self.lm_head
        assert head is not None, "only the last stage has a head"
        bias, slots = None, self.tied_slots
        if self.lm_head is not None:
            bias, slots = self.lm_head.bias, self.lm_head.slots
        logits: Array = head.weight.format.matmul(
            hidden, head.weight, None, num_rows, out_dtype=jnp.dtype(jnp.float32)
        )
        if slots is not None and adapters is not None:
            add, arrays = device_operations().add_low_rank, slots.get_value()
            low = LowRank(hidden, arrays, slots.layout, jnp.int32(0), adapters, add)
            logits = low.added_to(logits)
        if bias is not None:
            logits = logits + bias[...].astype(logits.dtype)
        logits = side_by_side(logits, self.spec.vocab_size, self.spec.shared_by)
        if self.spec.logits_factor != 1:
            logits = logits * self.spec.logits_factor
        cap = self.spec.logits_cap
        return logits if cap is None else cap * in_whole_vectors(jnp.tanh, logits / cap)


def _is_indexed(path: Any, variable: Any) -> bool:
    """Whether the scan passes an array whole, for all layers, instead of slicing it."""
    if isinstance(variable, Slots):
        return True
    return isinstance(variable, Weight) and variable.format.indexed
