"""The one decoder of this engine: Llama's shape, configured by ModelConfig.

Layers run with `lax.scan`, so the cost of compilation does not grow with depth. All weights have a
leading axis L. The scan slices norms and biases; it slices a matrix, or hands it over whole with
the layer's index, as its format says. The KV cache travels through the scan as its carry and is
indexed by layer: it is updated in place and never copied.
"""

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
from jax_engine.models.config import ModelConfig
from jax_engine.weights.choose import Formats
from jax_engine.weights.format import Weight, WeightFormat


class DecoderLayer(nnx.Module):  # type: ignore[misc]
    """Attention, then the MLP, each behind a norm of the sum of all that came before.

    The last part's result is added by the norm that follows, in one pass over both. With
    `stack=(L,)` it holds all L layers.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        dtype: jnp.dtype,
        weight_format: WeightFormat,
        stack: tuple[int, ...] = (),
    ):
        width, eps = config.hidden_size, config.rms_norm_eps
        self.input_norm = RMSNorm(width, eps=eps, dtype=dtype, stack=stack)
        self.attention = Attention(config, dtype=dtype, weight_format=weight_format, stack=stack)
        self.post_attention_norm = RMSNorm(width, eps=eps, dtype=dtype, stack=stack)
        self.mlp = GatedMLP(
            width,
            config.intermediate_size,
            bias=config.mlp_bias,
            dtype=dtype,
            weight_format=weight_format,
            stack=stack,
        )

    def __call__(
        self,
        x: Float[Array, "T E"],
        residual: Float[Array, "T E"],
        angles: tuple[Float[Array, "T 1 half"], Float[Array, "T 1 half"]],
        kv_cache: Float[Array, "L 2 N K B D"],
        attn: AttentionInputs,
        layer: Int[Array, ""],
    ) -> tuple[Float[Array, "T E"], Float[Array, "T E"], Float[Array, "L 2 N K B D"]]:
        """What the MLP returned, the sum of all before it, and the cache."""
        num_tokens = attn.query_start_loc[-1]
        hidden, residual = self.input_norm(x, residual, num_tokens)
        x, kv_cache = self.attention(hidden, angles, kv_cache, attn, layer)
        hidden, residual = self.post_attention_norm(x, residual, num_tokens)
        return self.mlp(hidden, layer, num_tokens), residual, kv_cache


class Decoder(nnx.Module):  # type: ignore[misc]
    """Token ids to hidden states over a paged KV cache, and hidden states to logits.

    Attributes:
        layers: one DecoderLayer that holds the weights of all L.
        lm_head: [V, E], or None when the embedding serves as the head too.
    """

    def __init__(self, config: ModelConfig, *, dtype: jnp.dtype, formats: Formats):
        self.config = config
        tied, width, vocab = config.tie_word_embeddings, config.hidden_size, config.vocab_size
        matrices: dict[str, Any] = {"dtype": dtype, "weight_format": formats.products}
        table = formats.products if tied else formats.lookup
        self.embed = Embedding(vocab, width, dtype=dtype, weight_format=table)
        self.layers = DecoderLayer(config, **matrices, stack=(config.num_layers,))
        self.norm = RMSNorm(width, eps=config.rms_norm_eps, dtype=dtype)
        self.lm_head = None if tied else Linear(width, vocab, **matrices)

    def __call__(
        self,
        token_ids: Int[Array, " T"],
        positions: Int[Array, " T"],
        kv_cache: Float[Array, "L 2 N K B D"],
        attn: AttentionInputs,
    ) -> tuple[Float[Array, "T E"], Float[Array, "L 2 N K B D"]]:
        """Normed hidden states of a ragged batch of tokens, and the cache with their K/V."""
        config = self.config
        frequencies, scaling = inverse_frequencies(
            config.rope, config.head_dim, config.max_position_embeddings
        )
        angles = rotary_angles(positions, frequencies, scaling)
        graphdef, whole, stacked = nnx.split(self.layers, _is_indexed, ...)

        def one_layer(carry, sliced_and_index):  # type: ignore[no-untyped-def]
            x, residual, cache = carry
            sliced, layer = sliced_and_index
            layers = nnx.merge(graphdef, whole, sliced)
            return layers(x, residual, angles, cache, attn, layer), None

        embedded = self.embed(token_ids)
        dtype = self.layers.mlp.down.result_dtype(embedded.dtype)
        start = (embedded.astype(dtype), jnp.zeros_like(embedded), kv_cache)
        indices = jnp.arange(config.num_layers, dtype=jnp.int32)
        (x, residual, kv_cache), _ = jax.lax.scan(one_layer, start, (stacked, indices))
        hidden, _ = self.norm(x, residual, attn.query_start_loc[-1])
        return hidden, kv_cache

    @jax.named_scope("head")
    def compute_logits(
        self, hidden: Float[Array, "R E"], num_rows: Int[Array, ""] | None = None
    ) -> Float[Array, "R V"]:
        """Float32 logits of chosen rows of the hidden states, `num_rows` of which are wanted."""
        if self.lm_head is None:
            return self.embed.logits(hidden, num_rows)
        return self.lm_head(hidden, num_rows=num_rows, out_dtype=jnp.dtype(jnp.float32))


def _is_indexed(path: Any, variable: Any) -> bool:
    """Whether a layer receives the weight of all layers, and the scan does not slice it."""
    return isinstance(variable, Weight) and variable.format.indexed
