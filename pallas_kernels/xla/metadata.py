"""Cuts one step's work into units of equal size.

A step is a ragged batch. Sequences with one query token ("decode rows") and sequences with
several ("tiles" of queries) take different paths through the kernels. Both are cut into units of
equal size, so that a kernel's loops run over real work only. The unit of a decode is an item, one
chunk of one row's context; the unit of the other sequences is a tile.
"""

import dataclasses
import functools

import jax
from jaxtyping import Array, Int

from pallas_kernels.decode_rows import decode_rows
from pallas_kernels.ranges import cumulative

# Most and fewest queries in one tile.
TILE_QUERIES = 64
SMALLEST_TILE = 8


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["row_seq", "row_token", "row_context_len", "token_row", "seq_tiles"],
    meta_fields=["decode_only"],
)
@dataclasses.dataclass(frozen=True)
class XlaMetadata:
    """The work of one step. R = min(S, T) bounds the number of decode rows.

    Attributes:
        row_seq: sequence of each decode row.
        row_token: the row's one query token.
        row_context_len: context length of each row; 0 for the rows beyond the last.
        token_row: decode row of each token, or -1.
        seq_tiles: number of query tiles before each sequence, then of all; a decode has none.
        decode_only: whether no sequence has several query tokens.
    """

    row_seq: Int[Array, " R"]
    row_token: Int[Array, " R"]
    row_context_len: Int[Array, " R"]
    token_row: Int[Array, " T"]
    seq_tiles: Int[Array, " S_plus_1"]
    decode_only: bool


def make_metadata(
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    num_tokens: int,
    *,
    decode_only: bool,
) -> XlaMetadata:
    """The work of one step; see `pallas_kernels.make_metadata`."""
    rows = decode_rows(context_lens, query_start_loc, num_tokens)
    return XlaMetadata(
        row_seq=rows.row_seq,
        row_token=rows.row_token,
        row_context_len=rows.row_context_len,
        token_row=rows.token_row,
        seq_tiles=cumulative(-(-rows.other_queries // tile_queries(num_tokens))),
        decode_only=decode_only,
    )


def tile_queries(num_tokens: int) -> int:
    """Queries in one tile of a step of T tokens: fewer in small steps, to waste less work."""
    return min(TILE_QUERIES, max(SMALLEST_TILE, num_tokens // 4))
