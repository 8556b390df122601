"""What layers may know of a step: one value, which each of them gets."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Shaped

from jax_engine.layers.rotary import Angles, Tables, all_angles, all_growth
from jax_engine.model_spec import AttentionSpec, QueryGrowth
from jax_engine.weights.low_rank import AdapterRows
from pallas_kernels import AttentionMetadata, make_metadata

BLOCK_SIZE = 16  # of a sequence that is alone


class Batch(NamedTuple):
    """A ragged batch: T tokens of S sequences, one after another, and then padding.

    Sequence i owns the tokens query_start_loc[i]:query_start_loc[i+1] and sees context_lens[i]
    positions, including those tokens. Padding sequences have context 0 and no tokens. What a layer
    computes of padding tokens may be any finite number.

    Attributes:
        block_tables: The blocks of the KV cache that hold each sequence's positions.
        slot_mapping: Where in the cache each token's keys and values go; -1 for padding.
        positions: Each token's place in its sequence.
        angles: Cos and sin of the positions, for all rotary embeddings of the layers.
        growth: Factors of the queries at these positions, for each rule of growth.
        metadata: The attention backend of all layers and its work list.
        kv_scales: The scales of a quantised cache; None for any other.
        prompt_lens: Where each sequence's prompt ends, so that a token that is computed again has
            the bits that it had; None where nothing is computed again.
        adapters: Which tokens have which adapter; None where no layer has slots for any.
    """

    block_tables: Int[Array, "S W"]
    context_lens: Int[Array, " S"]
    query_start_loc: Int[Array, " S+1"]
    slot_mapping: Int[Array, " T"]
    positions: Int[Array, " T"]
    angles: Mapping[Tables, Angles]
    growth: Mapping[QueryGrowth, Float[Array, "T 1 1"]]
    metadata: AttentionMetadata
    kv_scales: Float[Array, "L kv K"] | None = None
    prompt_lens: Int[Array, " S"] | None = None
    adapters: AdapterRows | None = None

    @property
    def batch_invariant(self) -> bool:
        """Whether sums may not depend on the number of tokens; see `make_batch`."""
        return self.metadata.batch_invariant

    @property
    def num_tokens(self) -> Int[Array, ""]:
        """How many tokens are not padding. Layers may skip the others."""
        return self.query_start_loc[-1]


def make_batch(
    attentions: Sequence[AttentionSpec],
    kv_cache: Shaped[Array, "L kv N K B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    slot_mapping: Int[Array, " T"],
    positions: Int[Array, " T"],
    *,
    dtype: DTypeLike,
    decode_only: bool = False,
    kv_scales: Float[Array, "L kv K"] | None = None,
    prompt_lens: Int[Array, " S"] | None = None,
    batch_invariant: bool = False,
    adapters: AdapterRows | None = None,
) -> Batch:
    """Computes what all layers share. `Batch` explains the arrays.

    Args:
        attentions: The attention of all layers that will get the batch.
        dtype: The dtype of queries.
        decode_only: The caller's promise that no sequence has several tokens, and with
            `batch_invariant` that none is a prompt's.
        batch_invariant: Whether a GPU's layers add in an order that depends on nothing but a
            token's own sequence. Attention is then Triton's, which is interpreted on a CPU.
    """
    num_heads, num_tokens = max(one.num_heads for one in attentions), len(positions)
    queries = jax.ShapeDtypeStruct((num_tokens, num_heads, kv_cache.shape[-1]), dtype)
    sequences, call = (block_tables, context_lens, query_start_loc), (queries, kv_cache)
    metadata = make_metadata(
        *sequences,
        num_tokens,
        decode_only=decode_only,
        backend="triton" if batch_invariant else None,
        call=call,
        prompt_lens=prompt_lens,
        batch_invariant=batch_invariant,
    )
    angles, growth = all_angles(attentions, positions), all_growth(attentions, positions)
    return Batch(
        *sequences,
        slot_mapping,
        positions,
        angles,
        growth,
        metadata,
        kv_scales,
        prompt_lens,
        adapters,
    )


def one_sequence(
    attentions: Sequence[AttentionSpec], num_layers: int, length: int, dtype: DTypeLike
) -> tuple[Batch, Shaped[Array, "L kv N K B D"]]:
    """A sequence from its first token on, alone, and an empty cache for it."""
    kv, heads, size = attentions[0].cached
    num_blocks = -(-length // BLOCK_SIZE)
    kv_cache = jnp.zeros((num_layers, kv, num_blocks, heads, BLOCK_SIZE, size), dtype)
    positions = jnp.arange(length, dtype=jnp.int32)
    block_tables = jnp.arange(num_blocks, dtype=jnp.int32)[None]
    query_start_loc = jnp.array([0, length], jnp.int32)
    arrays = block_tables, query_start_loc[1:], query_start_loc, positions, positions
    return make_batch(attentions, kv_cache, *arrays, dtype=dtype), kv_cache
