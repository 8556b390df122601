"""Cuts one step's work into units of equal size.

A step is a ragged batch. Sequences with one query token ("decode rows") and sequences with
several ("tiles" of queries) take different paths through the kernels. Both are cut into units of
equal size, so that a kernel's loops run over real work only. The unit of a decode is an item, one
chunk of one row's context; the unit of the other sequences is a tile.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from pallas_kernels.decode_rows import decode_rows
from pallas_kernels.ranges import cumulative

# Most and fewest queries in one tile.
TILE_QUERIES = 64
SMALLEST_TILE = 8
POSITIONS = 32  # of one tile where tiles begin at multiples of it: see `make_metadata`


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "row_seq",
        "row_token",
        "row_context_len",
        "token_row",
        "seq_tiles",
        "seq_queries",
        "seq_lead",
    ],
    meta_fields=["tile_queries", "decode_only", "by_position"],
)
@dataclasses.dataclass(frozen=True)
class XlaMetadata:
    """The work of one step. R bounds the number of decode rows: min(S, T), by position T.

    Attributes:
        row_seq: sequence of each decode row.
        row_token: the row's one query token.
        row_context_len: context length of each row; 0 for the rows beyond the last.
        token_row: decode row of each token, or -1.
        seq_tiles: number of query tiles before each sequence, then of all; a decode has none.
        seq_queries: number of each sequence's queries that are in tiles, its first ones.
        seq_lead: how many queries before its first one a sequence's first tile begins.
        tile_queries: number of queries in a tile.
        decode_only: whether there are no tiles.
        by_position: whether tiles and rows are chosen by the positions of queries.
    """

    row_seq: Int[Array, " R"]
    row_token: Int[Array, " R"]
    row_context_len: Int[Array, " R"]
    token_row: Int[Array, " T"]
    seq_tiles: Int[Array, " S_plus_1"]
    seq_queries: Int[Array, " S"]
    seq_lead: Int[Array, " S"]
    tile_queries: int
    decode_only: bool
    by_position: bool = False


def make_metadata(
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    num_tokens: int,
    *,
    decode_only: bool,
    prompt_lens: Int[Array, " S"] | None = None,
) -> XlaMetadata:
    """The work of one step; see `pallas_kernels.make_metadata`.

    With `prompt_lens`, queries of prompts are in tiles, and all behind them are rows. A tile begins
    at a multiple of POSITIONS. So a query is at the same place of a tile of the same size in any
    step, and its sums have the same order.
    """
    rows = decode_rows(context_lens, query_start_loc, num_tokens, prompt_lens)
    size, lead = tile_queries(num_tokens), jnp.zeros_like(rows.other_queries)
    if prompt_lens is not None:
        first = (context_lens - jnp.diff(query_start_loc)).astype(jnp.int32)
        size, lead = POSITIONS, jnp.where(rows.other_queries > 0, first % POSITIONS, 0)
    return XlaMetadata(
        row_seq=rows.row_seq,
        row_token=rows.row_token,
        row_context_len=rows.row_context_len,
        token_row=rows.token_row,
        seq_tiles=cumulative(-(-(lead + rows.other_queries) // size)),
        seq_queries=rows.other_queries,
        seq_lead=lead,
        tile_queries=size,
        decode_only=decode_only,
        by_position=prompt_lens is not None,
    )


def tile_queries(num_tokens: int) -> int:
    """Queries in one tile of a step of T tokens: fewer in small steps, to waste less work."""
    return min(TILE_QUERIES, max(SMALLEST_TILE, num_tokens // 4))
