"""Attention over the paged KV cache (SOSP'23 paper, section 4.1), with fused projections."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from jax_engine.layers.linear import Linear
from jax_engine.layers.rotary import apply_rotary
from jax_engine.model_spec import AttentionSpec
from jax_engine.weights.format import WeightFormat
from pallas_kernels import AttentionMetadata, paged_attention, write_kv


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AttentionInputs:
    """Where each token of a ragged batch reads and writes the cache; the same in all layers.

    Sequence i owns the tokens query_start_loc[i]:query_start_loc[i+1] and sees context_lens[i]
    positions, including those tokens. Padding sequences have context 0 and no tokens. Padding
    tokens have slot -1.

    Attributes:
        metadata: The attention backend of all layers and its work list, derived from the other
            fields by `pallas_kernels.make_metadata`.
    """

    block_tables: Int[Array, "S W"]
    context_lens: Int[Array, " S"]
    query_start_loc: Int[Array, " S+1"]
    slot_mapping: Int[Array, " T"]
    metadata: AttentionMetadata


class Attention(nnx.Module):  # type: ignore[misc]
    """Grouped-query attention: one QKV product, RoPE, KV write, attention, output projection.

    Attributes:
        qkv: Weight [(H + 2K) * D, E] for each layer: the rows of Q, then K, then V.
        o: Weight [E, H * D] for each layer.
    """

    def __init__(
        self,
        spec: AttentionSpec,
        width: int,
        *,
        dtype: jnp.dtype,
        weight_format: WeightFormat,
        stack: tuple[int, ...] = (),
    ):
        self.spec = spec
        linear = functools.partial(
            Linear,
            bias=spec.bias,
            dtype=dtype,
            weight_format=weight_format,
            stack=stack,
        )
        rows = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
        self.qkv = linear(width, rows)
        self.o = linear(spec.num_heads * spec.head_dim, width)

    def __call__(
        self,
        x: Float[Array, "T E"],
        angles: tuple[Float[Array, "T 1 half"], Float[Array, "T 1 half"]],
        kv_cache: Float[Array, "L 2 N K B D"],
        attn: AttentionInputs,
        layer: Int[Array, ""],
        cache_layer: Int[Array, ""],
    ) -> tuple[Float[Array, "T E"], Float[Array, "L 2 N K B D"]]:
        """Writes all keys and values of the step, then attends.

        Args:
            layer: The layer's index in the stack of weights.
            cache_layer: The layer's index in the KV cache.
        """
        spec, tokens, num_tokens = self.spec, x.shape[0], attn.query_start_loc[-1]
        with jax.named_scope("qkv"):
            qkv = self.qkv(x, layer, num_tokens).reshape(tokens, -1, spec.head_dim)
        q, k, v = jnp.split(qkv, (spec.num_heads, spec.num_heads + spec.num_kv_heads), axis=1)
        with jax.named_scope("rotary"):
            q, k = apply_rotary(q, angles), apply_rotary(k, angles).astype(kv_cache.dtype)
        with jax.named_scope("kv_write"):
            v = v.astype(kv_cache.dtype)
            kv_cache = write_kv(kv_cache, k, v, attn.slot_mapping, layer=cache_layer)
        with jax.named_scope("attention"):
            out = paged_attention(
                q,
                kv_cache,
                attn.block_tables,
                attn.context_lens,
                attn.query_start_loc,
                layer=cache_layer,
                scale=spec.head_dim**-0.5,
                window=spec.window,
                metadata=attn.metadata,
            )
        with jax.named_scope("attention_output"):
            out = out.astype(x.dtype).reshape(tokens, -1)
            return self.o(out, layer, num_tokens), kv_cache
