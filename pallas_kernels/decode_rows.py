"""Which sequences of a step decode, that is, have one query token, and which have more."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from pallas_kernels.ranges import cumulative, owner


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
