"""Separates a step's decodes, which have one query token each, from its other sequences."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from pallas_kernels.ranges import cumulative, owner


class DecodeRows(NamedTuple):
    """A step's decodes, one row each. R = min(S, T) bounds their number.

    Attributes:
        row_seq: sequence of each decode row.
        row_token: the row's one query token.
        row_context_len: context length of each row; 0 for the rows beyond the last.
        token_row: decode row of each token, or -1 if it belongs to none.
        other_queries: number of query tokens of each sequence; 0 for a decode.
    """

    row_seq: Int[Array, " R"]
    row_token: Int[Array, " R"]
    row_context_len: Int[Array, " R"]
    token_row: Int[Array, " T"]
    other_queries: Int[Array, " S"]


def decode_rows(
    context_lens: Int[Array, " S"], query_start_loc: Int[Array, " S+1"], num_tokens: int
) -> DecodeRows:
    """Finds the decodes of a step of `num_tokens` tokens. `paged_attention` explains the arrays."""
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
        row_seq=row_seq,
        row_token=jnp.where(exists, starts[row_seq], 0),
        row_context_len=jnp.where(exists, context_lens.astype(jnp.int32)[row_seq], 0),
        token_row=jnp.where(in_row, rows_before[token_seq], -1),
        other_queries=jnp.where(is_row, 0, query_lens),
    )
