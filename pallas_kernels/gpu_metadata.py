"""The work list of one step's attention on a GPU, computed once and shared by all layers.

Sequences with one query token become decode rows, and the others are cut into tiles of queries. If
it must not matter how a sequence is cut into steps, prompts' queries are in tiles and all others
are rows. The size of a GPU's grid is static. So the list has room for the largest number of tiles
that T tokens of S sequences can have. The program of a tile that does not exist finds out by one
load, and exits.
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
    data_fields=[
        "row_seq",
        "row_token",
        "row_context_len",
        "token_row",
        "other_queries",
        "tile_seq",
        "tile_start",
    ],
    meta_fields=["tile_queries", "decode_only", "batch_invariant"],
)
@dataclasses.dataclass(frozen=True)
class GpuMetadata:
    """The work of one step. R bounds the decode rows (`DecodeRows`), and NT the tiles of the rest.

    Attributes:
        row_seq: sequence of each decode row.
        row_token: the row's one query token.
        row_context_len: tokens that each row sees; 0 for the rows beyond the last.
        token_row: decode row of each token, or -1 if it belongs to none.
        other_queries: each sequence's first query tokens, which are in tiles.
        tile_seq: sequence of each tile; S for the tiles beyond the last.
        tile_start: the tile's first query, counted from the sequence's first query of this step.
        tile_queries: queries in a tile; the last tile of a sequence may have fewer.
        decode_only: whether all queries are decode rows.
        batch_invariant: whether no sum's order may depend on the step's other queries.
    """

    row_seq: Int[Array, " R"]
    row_token: Int[Array, " R"]
    row_context_len: Int[Array, " R"]
    token_row: Int[Array, " T"]
    other_queries: Int[Array, " S"]
    tile_seq: Int[Array, " NT"]
    tile_start: Int[Array, " NT"]
    tile_queries: int
    decode_only: bool
    batch_invariant: bool = False


def make_gpu_metadata(
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    num_tokens: int,
    *,
    tile_queries: int,
    decode_only: bool,
    prompt_lens: Int[Array, " S"] | None = None,
    batch_invariant: bool = False,
) -> GpuMetadata:
    """Lists the work of one step (`pallas_kernels.make_metadata` explains the arguments)."""
    # A step that only decodes has one query a sequence, all of them behind the prompts.
    split_at = None if decode_only else prompt_lens
    rows = decode_rows(context_lens, query_start_loc, num_tokens, split_at)
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
        other_queries=rows.other_queries,
        tile_seq=tile_seq,
        tile_start=jnp.where(tile_seq < num_seqs, tile_start, 0),
        tile_queries=tile_queries,
        decode_only=decode_only,
        batch_invariant=batch_invariant,
    )
