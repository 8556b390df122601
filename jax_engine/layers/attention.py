"""Attention over the paged KV cache (SOSP'23 paper, section 4.1), with fused projections."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, Shaped

from jax_engine.layers.batch import Batch
from jax_engine.layers.linear import Linear
from jax_engine.layers.norm import HeadNorm
from jax_engine.layers.rotary import angles_of, apply_rotary
from jax_engine.model_spec import AttentionSpec
from jax_engine.parallel.collectives import heads_of_all, own_part
from jax_engine.weights.format import WeightFormat
from pallas_kernels import bidirectional_attention, paged_attention, write_kv


class LayerNumbers(NamedTuple):
    """Numbers that differ between the repetitions of a layer, besides its weights.

    A scan counts the repetitions, and hands out one element of each array.

    Attributes:
        layer: the layer's index in the stack of weights.
        cache_layer: the layer's index in the KV cache.
        rope: the number of its rotary embedding among the choices; None if there is one for all.
        window: how many of the last positions it sees; None if it is the same for all.
    """

    layer: Int[Array, ""]
    cache_layer: Int[Array, ""]
    rope: Int[Array, ""] | None = None
    window: Int[Array, ""] | None = None


class Attention(nnx.Module):  # type: ignore[misc]
    """Grouped-query attention: one QKV product, RoPE, KV write, attention, output projection.

    Attributes:
        qkv: Weight [(H + 2K) * D, E] for each layer: the rows of Q, then K, then V.
        o: Weight [E, H * D] for each layer.
        q_norm: Norm of the queries, or None.
        k_norm: Norm of the keys, or None.
        sinks: [*stack, H] in float32, or None.
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
        heads, kv_heads, size = spec.num_heads, spec.num_kv_heads, spec.head_dim
        linear = functools.partial(Linear, dtype=dtype, weight_format=weight_format, stack=stack)
        self.qkv = linear(width, (heads + 2 * kv_heads) * size, bias=spec.qkv_bias)
        shared: dict[str, Any] = {"shared_by": spec.shared_by, "leaves": spec.leaves}
        shared["whole_rows"] = spec.whole_rows
        self.o = linear(heads * size, width, bias=spec.output_bias, **shared)
        norm = spec.head_norm
        normed = (heads, kv_heads)
        if norm is not None and norm.whole:  # which reads the heads of all devices
            normed = (heads * spec.shared_by, kv_heads * spec.shared_by // spec.kv_copies)
        self.q_norm = None if norm is None else HeadNorm(norm, normed[0], size, stack=stack)
        self.k_norm = None if norm is None else HeadNorm(norm, normed[1], size, stack=stack)
        self.sinks = nnx.Param(jnp.zeros((*stack, heads), jnp.float32)) if spec.sinks else None

    def __call__(
        self,
        x: Float[Array, "T E"],
        batch: Batch,
        kv_cache: Shaped[Array, "L kv N K B D"],
        numbers: LayerNumbers,
    ) -> tuple[Float[Array, "T E"], Shaped[Array, "L kv N K B D"]]:
        """Writes all keys and values of the step, then attends."""
        q, k, v = self._project(x, batch, numbers.layer)
        q, k = self._place(q, k, batch, numbers)
        out, kv_cache = attend(self.spec, self.sinks, (q, k, v), batch, kv_cache, numbers)
        with jax.named_scope("attention_output"):
            out = out.astype(x.dtype).reshape(x.shape[0], -1)
            return self.o(out, batch, numbers.layer), kv_cache

    def _project(
        self, x: Float[Array, "T E"], batch: Batch, layer: Int[Array, ""]
    ) -> tuple[Float[Array, "T H D"], Float[Array, "T K D"], Float[Array, "T K D"]]:
        spec = self.spec
        with jax.named_scope("qkv"):
            qkv = self.qkv(x, batch, layer).reshape(x.shape[0], -1, spec.head_dim)
        if spec.clip is not None:
            qkv = jnp.clip(qkv, -spec.clip, spec.clip)
        q, k, v = jnp.split(qkv, (spec.num_heads, spec.num_heads + spec.num_kv_heads), axis=1)
        return q, k, v

    def _place(
        self,
        q: Float[Array, "T H D"],
        k: Float[Array, "T K D"],
        batch: Batch,
        numbers: LayerNumbers,
    ) -> tuple[Float[Array, "T H D"], Float[Array, "T K D"]]:
        """Norms queries and keys, and rotates them by their positions, in the model's order."""
        norm = self.spec.head_norm
        if norm is not None and not norm.rotated_first:
            q, k = self._normed(q, k, batch)
        with jax.named_scope("rotary"):
            angles = angles_of(self.spec, batch.angles, numbers.rope)
            if angles is not None:
                q, k = apply_rotary(q, angles), apply_rotary(k, angles)
        if norm is not None and norm.rotated_first:
            q, k = self._normed(q, k, batch)
        return grow(q, self.spec, batch), k

    def _normed(
        self, q: Float[Array, "T H D"], k: Float[Array, "T K D"], batch: Batch
    ) -> tuple[Float[Array, "T H D"], Float[Array, "T K D"]]:
        """After the norms.

        A norm over all heads together adds up the squares of all devices' heads. Each device does
        so in the order of one device: queries and keys are short beside the sums that devices send
        each other, and a sum of their sums of squares would have other bits.
        """
        spec = self.spec
        assert self.q_norm is not None and self.k_norm is not None
        if spec.shared_by == 1 or not self.q_norm.spec.whole:
            return self.q_norm(q, batch), self.k_norm(k, batch)
        q, k = heads_of_all(q, k, spec.shared_by, spec.kv_copies)
        q, k = self.q_norm(q, batch), self.k_norm(k, batch)
        own = own_part(k, spec.shared_by, axis=1, copies=spec.kv_copies)
        return own_part(q, spec.shared_by, axis=1), own


def attend(
    spec: AttentionSpec,
    sinks: nnx.Param | None,
    qkv: tuple[Float[Array, "T H D"], Float[Array, "T K D"], Float[Array, "T K D"] | None],
    batch: Batch,
    kv_cache: Shaped[Array, "L kv N K B D"],
    numbers: LayerNumbers,
) -> tuple[Float[Array, "T H D"], Shaped[Array, "L kv N K B D"]]:
    """Writes keys and values to a layer's cache, then attends as the specification says.

    An encoder's layer, which sees whole sequences, leaves the cache as it is.
    """
    q, k, v = qkv
    layer, scales = numbers.cache_layer, batch.kv_scales
    sequences = batch.sequences if spec.chunk is None else batch.chunks[spec.chunk]
    slopes = spec.alibi_slopes
    window = spec.window if numbers.window is None else numbers.window
    assert not isinstance(window, tuple)
    scale = spec.query_dim**-0.5 if spec.scale is None else spec.scale
    if not spec.causal:
        assert v is not None, "encoders have no latents"
        with jax.named_scope("attention"):
            # The projection's own order: XLA leaves it where it is.
            joined, heads = jnp.concatenate((q, k, v), axis=1), spec.num_heads
            starts = batch.sequences.query_start_loc
            whole = bidirectional_attention(
                joined, starts, num_heads=heads, scale=scale, window=window
            )
        return whole, kv_cache
    with jax.named_scope("kv_write"):
        kv_cache = write_kv(kv_cache, k, v, batch.slot_mapping, layer=layer, kv_scales=scales)
    with jax.named_scope("attention"):
        out: Array = paged_attention(
            q,
            kv_cache,
            sequences.block_tables,
            sequences.context_lens,
            sequences.query_start_loc,
            layer=layer,
            scale=scale,
            window=window,
            soft_cap=spec.soft_cap,
            alibi_slopes=None
            if slopes is None
            else own_part(jnp.asarray(slopes, jnp.float32), spec.shared_by),
            sinks=None if sinks is None else sinks[...],
            kv_scales=scales,
            prompt_lens=sequences.prompt_lens,
            metadata=sequences.metadata,
        )
    return out, kv_cache


def grow(q: Float[Array, "T H D"], spec: AttentionSpec, batch: Batch) -> Float[Array, "T H D"]:
    """Queries, larger by their positions if the layer has such a rule."""
    if spec.query_growth is None:
        return q
    grown: Array = (q * batch.growth[spec.query_growth]).astype(q.dtype)
    return grown
