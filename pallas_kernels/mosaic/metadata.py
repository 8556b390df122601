"""Metadata of one step: the GPU backends' work list, and a layout of queries aligned for TMA.

TMA moves groups of eight rows, which must begin at a multiple of eight. So the prefill kernel gets
each sequence's queries at a multiple of eight tokens, with padding between sequences. It can then
write the last group completely without touching another sequence.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from pallas_kernels.gpu_metadata import GpuMetadata, make_gpu_metadata
from pallas_kernels.ranges import cumulative, owner

ALIGNMENT = 8
# Most query tokens of a tile.
MOST_QUERIES = 128


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["work", "seq_place", "token_place", "place_token"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class MosaicMetadata:
    """The work of one step. A "place" is an index among TP aligned query tokens.

    Attributes:
        work: decode rows and tiles.
        seq_place: place of each sequence's first query.
        token_place: place of each token; arbitrary for padding tokens.
        place_token: token of each place; arbitrary for places without one.
    """

    work: GpuMetadata
    seq_place: Int[Array, " S"]
    token_place: Int[Array, " T"]
    place_token: Int[Array, " TP"]


def make_metadata(
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S_plus_1"],
    num_tokens: int,
    *,
    decode_only: bool,
) -> MosaicMetadata:
    """The work of one step; see `pallas_kernels.make_metadata`."""
    size = min(MOST_QUERIES, max(ALIGNMENT, 1 << (num_tokens - 1).bit_length()))
    work = make_gpu_metadata(
        context_lens,
        query_start_loc,
        num_tokens,
        tile_queries=size,
        decode_only=decode_only,
    )
    starts = query_start_loc.astype(jnp.int32)
    num_seqs = len(context_lens)
    places = cumulative((jnp.diff(starts) + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT)
    token = jnp.arange(num_tokens, dtype=jnp.int32)
    seq = jnp.minimum(owner(starts, token), num_seqs - 1)
    place = token - starts[seq] + places[seq]
    most = num_tokens + min(num_seqs, num_tokens) * (ALIGNMENT - 1)
    room = -(-most // ALIGNMENT) * ALIGNMENT
    exists = token < starts[-1]
    return MosaicMetadata(
        work=work,
        seq_place=places[:-1],
        token_place=jnp.where(exists, place, 0),
        place_token=jnp.zeros(room, jnp.int32)
        .at[jnp.where(exists, place, room)]
        .set(token, mode="drop"),
    )
