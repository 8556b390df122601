"""Separates a step's decodes, a row for each query token of theirs, from its other queries."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from pallas_kernels.ranges import cumulative, owner


class DecodeRows(NamedTuple):
    """A step's decodes, one row each. R bounds their number: min(S, T), or T with `prompt_lens`.

    Attributes:
        row_seq: sequence of each decode row.
        row_token: the row's one query token.
        row_context_len: tokens that the row sees; 0 for the rows beyond the last.
        token_row: decode row of each token, or -1 if it belongs to none.
        other_queries: each sequence's first query tokens that are not decodes.
    """

    row_seq: Int[Array, " R"]
    row_token: Int[Array, " R"]
    row_context_len: Int[Array, " R"]
    token_row: Int[Array, " T"]
    other_queries: Int[Array, " S"]


def decode_rows(
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    num_tokens: int,
    prompt_lens: Int[Array, " S"] | None = None,
) -> DecodeRows:
    """Finds the decodes of a step of `num_tokens` tokens. `paged_attention` explains the arrays.

    A decode is the query of a sequence with one; with `prompt_lens`, every query behind a prompt.
    """
    num_seqs = context_lens.shape[0]
    starts, contexts = query_start_loc.astype(jnp.int32), context_lens.astype(jnp.int32)
    query_lens = jnp.diff(starts)
    if prompt_lens is None:
        most = min(num_seqs, num_tokens)
        others = jnp.where((query_lens == 1) & (contexts > 0), 0, query_lens)
    else:
        most = num_tokens
        others = jnp.clip(prompt_lens - (contexts - query_lens), 0, query_lens).astype(jnp.int32)
    rows_before = cumulative(query_lens - others)
    row = jnp.arange(most, dtype=jnp.int32)
    exists = row < rows_before[-1]
    row_seq = jnp.where(exists, owner(rows_before, row), 0)
    query = others[row_seq] + row - rows_before[row_seq]
    token = jnp.arange(num_tokens, dtype=jnp.int32)
    token_seq = jnp.minimum(owner(starts, token), num_seqs - 1)
    decode = token - starts[token_seq] - others[token_seq]
    in_row = (token < starts[-1]) & (decode >= 0)
    seen = contexts[row_seq] - query_lens[row_seq] + query + 1
    return DecodeRows(
        row_seq=row_seq,
        row_token=jnp.where(exists, starts[row_seq] + query, 0),
        row_context_len=jnp.where(exists, seen, 0),
        token_row=jnp.where(in_row, rows_before[token_seq] + decode, -1),
        other_queries=others,
    )
