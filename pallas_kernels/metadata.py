"""What one step's attention needs and is the same in all layers, computed once a step.

A step is a ragged batch. Sequences with one query token ("decode rows") and sequences with
several ("tiles" of queries) take different paths through the kernels. Here the batch is sorted
into the two, and the work of each is cut into units of equal size, so that a kernel's loops run
over real work only: a list of items for the decodes, each one chunk of one row's context, and
a list of tiles for the rest.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

# Queries in one tile, at most and at least.
TILE_QUERIES = 64
SMALLEST_TILE = 8


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["row_seq", "row_token", "row_context", "token_row", "seq_tiles"],
    meta_fields=["decode_only"],
)
@dataclasses.dataclass(frozen=True)
class AttentionMetadata:
    """The work of one step. R = min(S, T) bounds the number of decode rows.

    Attributes:
        row_seq: sequence of each decode row.
        row_token: the row's one query token.
        row_context: context length of each row; 0 for the rows beyond the last.
        token_row: decode row of each token, -1 where it belongs to none.
        seq_tiles: query tiles before each sequence, and after the last; 0 tiles for a decode.
        decode_only: no sequence has several query tokens.
    """

    row_seq: Int[Array, " R"]
    row_token: Int[Array, " R"]
    row_context: Int[Array, " R"]
    token_row: Int[Array, " T"]
    seq_tiles: Int[Array, " S_plus_1"]
    decode_only: bool


def make_metadata(
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    num_tokens: int,
    *,
    decode_only: bool = False,
) -> AttentionMetadata:
    """Prepare one step's attention; see `paged_attention` for the arrays.

    Args:
        block_tables: block tables; only the shape is used.
        context_lens: context lengths, this step's tokens included.
        query_start_loc: boundaries of the sequences' query tokens.
        num_tokens: T, the padded number of tokens of the step.
        decode_only: a promise, not checked, that no sequence has more than one query token;
            nothing is compiled for prefills then. T = 1 implies it.

    Raises:
        ValueError: shapes that do not belong together, or no tokens.
    """
    check_step(block_tables, context_lens, query_start_loc, num_tokens)
    rows = decode_rows(context_lens, query_start_loc, num_tokens)
    tiles = -(-rows.tiled_queries // tile_queries(num_tokens))
    return AttentionMetadata(
        row_seq=rows.seq,
        row_token=rows.token,
        row_context=rows.context,
        token_row=rows.of_token,
        seq_tiles=cumulative(tiles),
        decode_only=decode_only or num_tokens == 1,
    )


def check_step(
    block_tables: Array, context_lens: Array, query_start_loc: Array, num_tokens: int
) -> None:
    """Raise ValueError where the shapes of a step do not belong together, or it has no tokens."""
    num_seqs = context_lens.shape[0]
    if block_tables.ndim != 2 or block_tables.shape[0] != num_seqs:
        raise ValueError(f"expected [S, W] for [S]: {block_tables.shape=} {context_lens.shape=}")
    if query_start_loc.shape != (num_seqs + 1,):
        raise ValueError(f"expected [S+1] for [S]: {query_start_loc.shape=} {context_lens.shape=}")
    if num_tokens < 1 or num_seqs < 1:
        raise ValueError(f"a step has tokens and sequences: {num_tokens=} {context_lens.shape=}")


class DecodeRows(NamedTuple):
    """The sequences with one query token, side by side. R = min(S, T) bounds their number.

    Attributes:
        seq: sequence of each row.
        token: the row's one query token.
        context: context length of each row; 0 for the rows beyond the last.
        of_token: row of each token, -1 where it belongs to none.
        tiled_queries: query tokens of each sequence that is not a row; 0 for those that are.
    """

    seq: Int[Array, " R"]
    token: Int[Array, " R"]
    context: Int[Array, " R"]
    of_token: Int[Array, " T"]
    tiled_queries: Int[Array, " S"]


def decode_rows(
    context_lens: Int[Array, " S"], query_start_loc: Int[Array, " S+1"], num_tokens: int
) -> DecodeRows:
    """Sort the sequences of a step into decode rows and the rest."""
    num_seqs = context_lens.shape[0]
    starts = query_start_loc.astype(jnp.int32)
    query_lens = jnp.diff(starts)
    is_row = (query_lens == 1) & (context_lens > 0)
    rows_before = cumulative(is_row)
    row = jnp.arange(min(num_seqs, num_tokens), dtype=jnp.int32)
    exists = row < rows_before[-1]
    row_seq = jnp.where(exists, owner(rows_before, row), 0)
    token = jnp.arange(num_tokens, dtype=jnp.int32)
    token_seq = jnp.minimum(owner(starts, token), num_seqs - 1)
    in_row = (token < starts[-1]) & is_row[token_seq]
    return DecodeRows(
        seq=row_seq,
        token=jnp.where(exists, starts[row_seq], 0),
        context=jnp.where(exists, context_lens.astype(jnp.int32)[row_seq], 0),
        of_token=jnp.where(in_row, rows_before[token_seq], -1),
        tiled_queries=jnp.where(is_row, 0, query_lens),
    )


def tile_queries(num_tokens: int) -> int:
    """Queries in one tile of a step of T tokens: smaller in small steps, to waste less of them."""
    return min(TILE_QUERIES, max(SMALLEST_TILE, num_tokens // 4))


def owner(boundaries: Int[Array, " n"], index: Int[Array, "..."]) -> Int[Array, "..."]:
    """Which of n - 1 consecutive ranges each index falls into; n - 1 beyond the last."""
    # Comparing with all boundaries is one fused kernel; a binary search is a loop of several.
    return (boundaries[1:] <= index[..., None]).sum(-1, dtype=jnp.int32)


def cumulative(counts: Array) -> Int[Array, " n"]:
    """Boundaries of consecutive ranges of the given sizes, from 0."""
    return jnp.pad(jnp.cumsum(counts, dtype=jnp.int32), (1, 0))
