"""What layers may know of a step: one value, which each of them gets."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Shaped

from jax_engine.layers.chunks import Ragged, in_chunks
from jax_engine.layers.rotary import Angles, Tables, all_angles, all_growth
from jax_engine.model_spec import AttentionSpec, QueryGrowth
from jax_engine.weights.low_rank import AdapterRows
from pallas_kernels import AttentionMetadata, make_metadata

BLOCK_SIZE = 16  # of a sequence that is alone; less if chunks are no multiple of it


class Sequences(NamedTuple):
    """What attention reads: S sequences, or the parts of them that a chunk is to its tokens.

    Attributes:
        block_tables: The blocks of the KV cache that hold each sequence's positions.
        prompt_lens: Where each sequence's prompt ends, so that a token that is computed again has
            the bits that it had; None where nothing is computed again.
        metadata: The attention backend of all layers and its work list.
    """

    block_tables: Int[Array, "S W"]
    context_lens: Int[Array, " S"]
    query_start_loc: Int[Array, " S+1"]
    prompt_lens: Int[Array, " S"] | None
    metadata: AttentionMetadata


class Batch(NamedTuple):
    """A ragged batch: T tokens of S sequences, one after another, and then padding.

    Sequence i owns the tokens query_start_loc[i]:query_start_loc[i+1] and sees context_lens[i]
    positions, including those tokens. Padding sequences have context 0 and no tokens. What a layer
    computes of padding tokens may be any finite number.

    Attributes:
        sequences: The sequences, as attention reads them.
        chunks: The same cut into chunks of a size, for each size that layers have.
        slot_mapping: Where in the cache each token's keys and values go; -1 for padding.
        positions: Each token's place in its sequence.
        angles: Cos and sin of the positions, for all rotary embeddings of the layers.
        growth: Factors of the queries at these positions, for each rule of growth.
        kv_scales: The scales of a quantised cache; None for any other.
        adapters: Which tokens have which adapter; None where no layer has slots for any.
        token_types: The type of each token, in a model that has a table of them.
    """

    sequences: Sequences
    chunks: Mapping[int, Sequences]
    slot_mapping: Int[Array, " T"]
    positions: Int[Array, " T"]
    angles: Mapping[Tables, Angles]
    growth: Mapping[QueryGrowth, Float[Array, "T 1 1"]]
    kv_scales: Float[Array, "L kv K"] | None = None
    adapters: AdapterRows | None = None
    token_types: Int[Array, " T"] | None = None

    @property
    def batch_invariant(self) -> bool:
        """Whether sums may not depend on the number of tokens; see `make_batch`."""
        return self.sequences.metadata.batch_invariant

    @property
    def num_tokens(self) -> Int[Array, ""]:
        """How many tokens are not padding. Layers may skip the others."""
        return self.sequences.query_start_loc[-1]


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
    ragged = Ragged(block_tables, context_lens, query_start_loc, prompt_lens)
    num_heads, num_tokens = max(one.num_heads for one in attentions), len(positions)
    queries = jax.ShapeDtypeStruct((num_tokens, num_heads, kv_cache.shape[-1]), dtype)

    def planned(one: Ragged) -> Sequences:
        metadata = make_metadata(
            *one[:3],
            num_tokens,
            decode_only=decode_only,
            backend="triton" if batch_invariant else None,
            call=(queries, kv_cache),
            prompt_lens=one.prompt_lens,
            batch_invariant=batch_invariant,
        )
        return Sequences(*one, metadata)

    sizes = sorted({one.chunk for one in attentions if one.chunk is not None})
    several = 0 if decode_only else num_tokens
    chunks = {one: in_chunks(ragged, several, one, kv_cache.shape[-2]) for one in sizes}
    return Batch(
        planned(ragged),
        {size: planned(one) for size, one in chunks.items()},
        slot_mapping,
        positions,
        all_angles(attentions, positions),
        all_growth(attentions, positions),
        kv_scales,
        adapters,
    )


def whole_sequences(
    attentions: Sequence[AttentionSpec],
    query_start_loc: Int[Array, " starts"],
    num_tokens: int,
    token_types: Int[Array, " T"] | None = None,
) -> Batch:
    """A batch for an encoder: each sequence is whole, and there is no cache.

    Args:
        num_tokens: T.
    """
    lengths, token = jnp.diff(query_start_loc), jnp.arange(num_tokens, dtype=jnp.int32)
    owner = jnp.searchsorted(query_start_loc, token, side="right", method="compare_all") - 1
    start = query_start_loc[jnp.minimum(owner, len(lengths) - 1)]
    positions = jnp.where(token < query_start_loc[-1], token - start, 0)
    blocks = jnp.zeros((len(lengths), 0), jnp.int32)
    metadata = AttentionMetadata(None, "xla", num_tokens, len(lengths), decode_only=False)
    return Batch(
        Sequences(blocks, lengths, query_start_loc, None, metadata),
        chunks={},
        slot_mapping=jnp.full(num_tokens, -1, jnp.int32),
        positions=positions,
        angles=all_angles(attentions, positions),
        growth=all_growth(attentions, positions),
        token_types=token_types,
    )


def one_sequence(
    attentions: Sequence[AttentionSpec], num_layers: int, length: int, dtype: DTypeLike
) -> tuple[Batch, Shaped[Array, "L kv N K B D"]]:
    """A sequence from its first token on, alone, and an empty cache for it."""
    kv, heads, size = attentions[0].cached
    chunks = (one.chunk for one in attentions if one.chunk is not None)
    block_size = math.gcd(BLOCK_SIZE, *chunks)
    num_blocks = -(-length // block_size)
    kv_cache = jnp.zeros((num_layers, kv, num_blocks, heads, block_size, size), dtype)
    positions = jnp.arange(length, dtype=jnp.int32)
    block_tables = jnp.arange(num_blocks, dtype=jnp.int32)[None]
    query_start_loc = jnp.array([0, length], jnp.int32)
    arrays = block_tables, query_start_loc[1:], query_start_loc, positions, positions
    return make_batch(attentions, kv_cache, *arrays, dtype=dtype), kv_cache
