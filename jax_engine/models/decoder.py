"""The one decoder of this engine, built from a specification.

Layers run in `lax.scan`, so the cost of compilation does not grow with depth. A group of layers
is one scan over the repetitions of its pattern (`jax_engine/model_spec.py`): all weights at one
place of a pattern have a leading axis, the repetitions. The scan slices norms and biases. A matrix
is sliced, or passed whole with the layer's index, as its format says. The KV cache is the carry of
the scans and is indexed by layer: it is updated in place and never copied.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.attention import Attention, AttentionInputs
from jax_engine.layers.embedding import Embedding
from jax_engine.layers.linear import Linear
from jax_engine.layers.mlp import GatedMLP
from jax_engine.layers.norm import RMSNorm
from jax_engine.layers.rotary import inverse_frequencies, rotary_angles
from jax_engine.model_spec import LayerGroup, LayerSpec, ModelSpec, RopeConfig
from jax_engine.weights.format import Formats, Weight, WeightFormat

Angles = Mapping[tuple[RopeConfig, int], tuple[Array, Array]]  # by RoPE and head size
Carry = tuple[Array, Array, Array]  # the last part's output, the residual before it, the KV cache


class DecoderLayer(nnx.Module):  # type: ignore[misc]
    """Attention, then the MLP, each after a norm of the residual stream.

    Each part's output is added to the residual by the next norm, in one pass over both. With
    `stack=(n,)` it holds n layers.
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
        matrices: dict[str, Any] = {"dtype": dtype, "weight_format": weight_format, "stack": stack}
        self.input_norm = RMSNorm(width, eps=spec.norm_eps, dtype=dtype, stack=stack)
        self.attention = Attention(spec.attention, width, **matrices)
        self.post_attention_norm = RMSNorm(width, eps=spec.norm_eps, dtype=dtype, stack=stack)
        self.mlp = GatedMLP(spec.mlp, width, **matrices)

    def __call__(
        self,
        carry: Carry,
        angles: Angles,
        attn: AttentionInputs,
        layer: Int[Array, ""],
        cache_layer: Int[Array, ""],
    ) -> Carry:
        """
        Args:
            layer: the layer's index in the stack.
            cache_layer: the layer's index in the cache.
        """
        x, residual, kv_cache = carry
        num_tokens, spec = attn.query_start_loc[-1], self.attention.spec
        own_angles = angles[spec.rope, spec.head_dim]
        hidden, residual = self.input_norm(x, residual, num_tokens)
        x, kv_cache = self.attention(hidden, own_angles, kv_cache, attn, layer, cache_layer)
        hidden, residual = self.post_attention_norm(x, residual, num_tokens)
        return self.mlp(hidden, layer, num_tokens), residual, kv_cache


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

    def __call__(self, carry: Carry, angles: Angles, attn: AttentionInputs) -> Carry:
        graphdef, whole, stacked = nnx.split(self.places, _is_indexed, ...)
        first, period = self.first, len(self.places)

        def pattern(carry: Carry, sliced_and_index: tuple[Any, Array]) -> tuple[Carry, None]:
            sliced, index = sliced_and_index
            for place, layer in enumerate(nnx.merge(graphdef, whole, sliced)):
                number = index * period + (first + place)
                carry = layer(carry, angles, attn, index, number)
            return carry, None

        indices = jnp.arange(self.repeats, dtype=jnp.int32)
        return jax.lax.scan(pattern, carry, (stacked, indices))[0]


class Decoder(nnx.Module):  # type: ignore[misc]
    """Computes hidden states from token ids over a paged KV cache, and logits from hidden states.

    Attributes:
        groups: one LayerStack for each group of the specification.
        lm_head: [V, E], or None if the embedding is also the head.
    """

    def __init__(self, spec: ModelSpec, *, dtype: jnp.dtype, formats: Formats):
        self.spec = spec
        matrices: dict[str, Any] = {"dtype": dtype, "weight_format": formats.products}
        table = formats.products if spec.tied else formats.lookup
        self.embed = Embedding(spec.vocab_size, spec.width, dtype=dtype, weight_format=table)
        firsts = [spec.numbers(number, 0).start for number in range(len(spec.groups))]
        self.groups = nnx.List(
            [
                LayerStack(group, spec.width, first, **matrices)
                for group, first in zip(spec.groups, firsts, strict=True)
            ]
        )
        self.norm = RMSNorm(spec.width, eps=spec.norm_eps, dtype=dtype)
        self.lm_head = None if spec.tied else Linear(spec.width, spec.vocab_size, **matrices)

    def __call__(
        self,
        token_ids: Int[Array, " T"],
        positions: Int[Array, " T"],
        kv_cache: Float[Array, "L 2 N K B D"],
        attn: AttentionInputs,
    ) -> tuple[Float[Array, "T E"], Float[Array, "L 2 N K B D"]]:
        """Normed hidden states of a ragged batch of tokens, and the cache with their K/V."""
        angles = self._angles(positions)
        embedded = self.embed(token_ids)
        dtype = self.groups[0].places[0].mlp.down.result_dtype(embedded.dtype)
        carry = (embedded.astype(dtype), jnp.zeros_like(embedded), kv_cache)
        for group in self.groups:
            carry = group(carry, angles, attn)
        x, residual, kv_cache = carry
        hidden, _ = self.norm(x, residual, attn.query_start_loc[-1])
        return hidden, kv_cache

    def _angles(self, positions: Int[Array, " T"]) -> Angles:
        """Angles of each kind of rotary embedding in the model, computed once a step."""
        return {
            (rope, size): rotary_angles(positions, *inverse_frequencies(rope, size))
            for rope, size in dict.fromkeys(
                (one.rope, one.head_dim) for one in self.spec.attentions
            )
        }

    @jax.named_scope("head")
    def compute_logits(
        self, hidden: Float[Array, "R E"], num_rows: Int[Array, ""] | None = None
    ) -> Float[Array, "R V"]:
        """Float32 logits of chosen rows of hidden states; only the first `num_rows` are needed."""
        if self.lm_head is None:
            return self.embed.logits(hidden, num_rows)
        return self.lm_head(hidden, num_rows=num_rows, out_dtype=jnp.dtype(jnp.float32))


def _is_indexed(path: Any, variable: Any) -> bool:
    """Whether the scan passes the weight whole, for all layers, instead of slicing it."""
    return isinstance(variable, Weight) and variable.format.indexed
