"""The work list of one step's attention on a GPU, computed once and shared by all layers.

Sequences with one query token become decode rows, and the others are cut into tiles of queries. The
size of a GPU's grid is static. So the list has room for the largest number of tiles that T tokens
of S sequences can have. The program of a tile that does not exist finds out by one load, and exits.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from pallas_kernels.decode_rows import decode_rows
from pallas_kernels.ranges import cumulative, owner


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["row_seq", "row_token", "row_context_len", "token_row", "tile_seq", "tile_start"],
    meta_fields=["tile_queries", "decode_only"],
)
@dataclasses.dataclass(frozen=True)
class GpuMetadata:
    """The work of one step. R = min(S, T) bounds the decode rows, and NT the tiles of the rest.

    Attributes:
        row_seq: sequence of each decode row.
        row_token: the row's one query token.
        row_context_len: context length of each row; 0 for the rows beyond the last.
        token_row: decode row of each token, or -1 if it belongs to none.
        tile_seq: sequence of each tile; S for the tiles beyond the last.
        tile_start: the tile's first query, counted from the sequence's first query of this step.
        tile_queries: queries in a tile; the last tile of a sequence may have fewer.
        decode_only: whether no sequence has several query tokens.
    """

    row_seq: Int[Array, " R"]
    row_token: Int[Array, " R"]
    row_context_len: Int[Array, " R"]
    token_row: Int[Array, " T"]
    tile_seq: Int[Array, " NT"]
    tile_start: Int[Array, " NT"]
    tile_queries: int
    decode_only: bool


def make_gpu_metadata(
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    num_tokens: int,
    *,
    tile_queries: int,
    decode_only: bool,
) -> GpuMetadata:
    """Lists the work of one step (`pallas_kernels.make_metadata` explains the arguments)."""
    rows = decode_rows(context_lens, query_start_loc, num_tokens)
    num_seqs = context_lens.shape[0]
    tiles_before = cumulative(-(-rows.other_queries // tile_queries))
    # Each sequence rounds up at most once.
    tile = jnp.arange(-(-num_tokens // tile_queries) + num_seqs, dtype=jnp.int32)
    tile_seq = owner(tiles_before, tile)
    # The last boundary stands for the tiles that do not exist.
    tile_start = (tile - tiles_before[tile_seq]) * tile_queries
    return GpuMetadata(
        row_seq=rows.row_seq,
        row_token=rows.row_token,
        row_context_len=rows.row_context_len,
        token_row=rows.token_row,
        tile_seq=tile_seq,
        tile_start=jnp.where(tile_seq < num_seqs, tile_start, 0),
        tile_queries=tile_queries,
        decode_only=decode_only,
    )
