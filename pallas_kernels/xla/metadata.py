"""One step's work, cut into units of equal size.

A step is a ragged batch. Sequences with one query token ("decode rows") and sequences with
several ("tiles" of queries) take different paths through the kernels. Here the batch is sorted
into the two, and the work of each is cut into units of equal size, so that a kernel's loops run
over real work only: a list of items for the decodes, each one chunk of one row's context, and
a list of tiles for the rest.
"""

import dataclasses
import functools

import jax
from jaxtyping import Array, Int

from pallas_kernels.decode_rows import decode_rows
from pallas_kernels.ranges import cumulative

# Queries in one tile, at most and at least.
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
        token_row: decode row of each token, -1 where it belongs to none.
        seq_tiles: query tiles before each sequence, and after the last; 0 tiles for a decode.
        decode_only: no sequence has several query tokens.
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
    """Queries in one tile of a step of T tokens: smaller in small steps, to waste less of them."""
    return min(TILE_QUERIES, max(SMALLEST_TILE, num_tokens // 4))
