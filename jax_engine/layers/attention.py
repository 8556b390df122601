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
    positions, those tokens included. Padding sequences have context 0 and no tokens, and padding
    tokens the slot -1.

    Attributes:
        metadata: what `pallas_kernels.make_metadata` derived from the rest: the backend of all
            layers, and its work.
    """

    block_tables: Int[Array, "S W"]
    context_lens: Int[Array, " S"]
    query_start_loc: Int[Array, " S+1"]
    slot_mapping: Int[Array, " T"]
    metadata: AttentionMetadata


class Attention(nnx.Module):  # type: ignore[misc]
    """Grouped-query attention: QKV in one product, RoPE, write to the cache, attend, project.

    Attributes:
        qkv: weight [(H + 2K) * D, E] a layer: the rows of Q, then K, then V.
        o: weight [E, H * D] a layer.
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
        """All keys and values of the step are written before any query attends.

        Args:
            layer: its number in the stack of weights.
            cache_layer: its number in the cache.
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
