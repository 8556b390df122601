"""Multi-head latent attention (DeepSeek V2): a cache of latents, which all heads share.

A head's key is K_h latent, beside a rotated part that all heads share; its value is V_h latent.
Since q . (K_h latent) = (q K_h) . latent, queries are multiplied by K_h instead of each cached
latent, and the weighted sum of latents by V_h instead of each of them. So attention runs over the
cache as it is: H query heads, one KV head of latent and rotated part, whose value is the latent.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, Shaped

from jax_engine.layers.attention import LayerNumbers, attend, grow
from jax_engine.layers.batch import Batch
from jax_engine.layers.linear import Linear, low_rank_of
from jax_engine.layers.norm import Norm
from jax_engine.layers.rotary import angles_of, apply_rotary
from jax_engine.model_spec import AttentionSpec
from jax_engine.weights.format import Matrix, Weight, WeightFormat, empty_weight
from jax_engine.weights.low_rank import AdapterRows, Slots, rows_that_choose


class LatentAttention(nnx.Module):  # type: ignore[misc]
    """One product that makes latents, queries, KV write, attention, values, output projection.

    Over several devices heads are cut; each device makes and caches all latents.

    In shapes, C is the size of the latent, R that of the rotated part, and Q that of a head's
    query, which has a part that is not rotated, "plain", and R.

    Attributes:
        down: Weight [q + C + R, E] for each layer: the rows of the queries' latent (of the queries,
            if there is none), of the latent, and of the rotated part.
        q_norm: Norm of the queries' latent, or None.
        q_up: Weight [H * (plain + R), q_rank] for each layer, or None.
        kv_norm: Norm of the latent.
        k_up: Weight [H, C, plain] for each layer: each head's K_h, transposed.
        v_up: Weight [H, value_dim, C] for each layer: each head's V_h.
        o: Weight [E, H * value_dim] for each layer.
        sinks: [*stack, H] in float32, or None.
        k_up_slots, v_up_slots: What adapters add to the products of k_up and of v_up, of each head
            its own part, in a step that may have some; else None.
    """

    k_up_slots: Slots | None = None
    v_up_slots: Slots | None = None

    def __init__(
        self,
        spec: AttentionSpec,
        width: int,
        *,
        dtype: jnp.dtype,
        weight_format: WeightFormat,
        stack: tuple[int, ...] = (),
    ):
        assert spec.latent is not None
        self.spec, self.latent = spec, spec.latent
        latent, heads = spec.latent, spec.num_heads
        linear = functools.partial(Linear, dtype=dtype, weight_format=weight_format, stack=stack)
        queries, rank = heads * spec.query_dim, latent.q_rank
        self.down = linear(width, (rank or queries) + spec.head_dim, bias=spec.qkv_bias)
        self.q_norm = None if rank is None else Norm(latent.norm, rank, stack=stack)
        self.q_up = None if rank is None else linear(rank, queries)
        self.kv_norm = Norm(latent.norm, latent.kv_rank, stack=stack)

        def for_each_head(rows: int, columns: int) -> Weight:
            return empty_weight(Matrix((*stack, heads, rows, columns), dtype), weight_format)

        self.k_up = for_each_head(latent.kv_rank, latent.nope_dim)
        self.v_up = for_each_head(latent.value_dim, latent.kv_rank)
        shared: dict[str, Any] = {"shared_by": spec.shared_by, "leaves": spec.leaves}
        shared["whole_rows"] = spec.whole_rows
        self.o = linear(heads * latent.value_dim, width, bias=spec.output_bias, **shared)
        self.sinks = nnx.Param(jnp.zeros((*stack, heads), jnp.float32)) if spec.sinks else None

    def __call__(
        self,
        x: Float[Array, "T E"],
        batch: Batch,
        kv_cache: Shaped[Array, "L 1 N 1 B D"],
        numbers: LayerNumbers,
    ) -> tuple[Float[Array, "T E"], Shaped[Array, "L 1 N 1 B D"]]:
        """Writes all latents of the step, then attends."""
        q, latent, shared = self._project(x, batch, numbers.layer)
        q, k = self._place(q, latent, shared, batch, numbers)
        out, kv_cache = attend(self.spec, self.sinks, (q, k, None), batch, kv_cache, numbers)
        with jax.named_scope("attention_output"):
            latents = out[..., : self.latent.kv_rank].astype(x.dtype)
            values = _for_each_head(self.v_up, self.v_up_slots, latents, batch, numbers.layer)
            values = values.astype(x.dtype).reshape(x.shape[0], -1)
            return self.o(values, batch, numbers.layer), kv_cache

    def _project(
        self, x: Float[Array, "T E"], batch: Batch, layer: Int[Array, ""]
    ) -> tuple[Float[Array, "T H Q"], Float[Array, "T C"], Float[Array, "T R"]]:
        """Every head's query, the latent before its norm, and the rotated part before rotation."""
        spec = self.spec
        with jax.named_scope("qkv"):
            made = self.down(x, batch, layer)
            made, latent, shared = jnp.split(made, (-spec.head_dim, -spec.rotated), axis=-1)
            if self.q_norm is not None and self.q_up is not None:
                made = self.q_up(self.q_norm(made, batch, x.dtype), batch, layer)
            return made.reshape(x.shape[0], spec.num_heads, spec.query_dim), latent, shared

    def _place(
        self,
        q: Float[Array, "T H Q"],
        latent: Float[Array, "T C"],
        shared: Float[Array, "T R"],
        batch: Batch,
        numbers: LayerNumbers,
    ) -> tuple[Float[Array, "T H D"], Float[Array, "T 1 D"]]:
        """Queries and keys as the cache has them: the latent's part, then the rotated part."""
        latent = self.kv_norm(latent, batch, latent.dtype)
        plain, turning = jnp.split(q, (self.latent.nope_dim,), axis=-1)
        with jax.named_scope("rotary"):
            angles, shared = angles_of(self.spec, batch.angles, numbers.rope), shared[:, None]
            if angles is not None:
                turning, shared = apply_rotary(turning, angles), apply_rotary(shared, angles)
        with jax.named_scope("k_up"):
            plain = plain.astype(self.k_up.matrix.dtype)
            plain = _for_each_head(self.k_up, self.k_up_slots, plain, batch, numbers.layer)
        q = jnp.concatenate([plain.astype(turning.dtype), turning], axis=-1)
        k = jnp.concatenate([latent[:, None], shared], axis=-1)
        return grow(q, self.spec, batch), k


def _for_each_head(
    weight: Weight,
    slots: Slots | None,
    x: Float[Array, "T H in"],
    batch: Batch,
    layer: Int[Array, ""],
) -> Float[Array, "T H out"]:
    """Each head's part of x by the head's own matrix, and by that of its token's adapter."""
    out = weight.format.batched_matmul(x.swapaxes(0, 1), weight, layer, batch.num_tokens)
    out = out.swapaxes(0, 1)
    if slots is None:
        return out
    rows = _rows_of_heads(slots, x, batch)
    low = low_rank_of(slots, x.reshape(-1, x.shape[-1]), rows, layer)
    assert low is not None
    return low.added_to(out.reshape(-1, out.shape[-1])).reshape(out.shape)


def _rows_of_heads(slots: Slots, x: Float[Array, "T H in"], batch: Batch) -> AdapterRows:
    """Which adapter each head of each token has."""
    assert batch.adapters is not None
    token, head = (numbers.reshape(-1) for numbers in jnp.indices(x.shape[:2], jnp.int32))
    return rows_that_choose(batch.adapters, token, head, slots.layout)
