"""Attention in chunks, as Llama 4 has it: a query sees the positions of its own chunk only.

The positions of a sequence lie in chunks of one size. To attention, each chunk that a step's tokens
are in is a sequence of its own: its blocks are a part of the sequence's block table, its context
ends with the chunk's last token. So no kernel knows of chunks. A chunk must be a whole number of
blocks.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


class Ragged(NamedTuple):
    """A ragged batch, as `Sequences` of `jax_engine/layers/batch.py` has it."""

    block_tables: Int[Array, "S W"]
    context_lens: Int[Array, " S"]
    query_start_loc: Int[Array, " S+1"]
    prompt_lens: Int[Array, " S"] | None


class Owners(NamedTuple):
    """The chunks that tokens of a step are in, in the order of the tokens; padding comes last.

    Attributes:
        sequence: the sequence of each.
        begin: its first position.
        is_real: whether it is no padding.
    """

    sequence: Int[Array, " R"]
    begin: Int[Array, " R"]
    is_real: Bool[Array, " R"]


def in_chunks(batch: Ragged, num_tokens: int, size: int, block_size: int) -> Ragged:
    """The sequences of a step, cut into chunks.

    Args:
        num_tokens: At most so many tokens, padding included, are of sequences with several tokens.
        size: Positions in a chunk, a multiple of `block_size`.
    """
    starts = batch.context_lens - jnp.diff(batch.query_start_loc)  # each one's first new position
    owners = _owners(batch, starts, num_tokens, size)
    sequence, begin = owners.sequence, owners.begin
    first = jnp.maximum(starts[sequence], begin)
    stop = jnp.minimum(batch.context_lens[sequence], begin + size)
    tokens = batch.query_start_loc[sequence] + first - starts[sequence]
    total = batch.query_start_loc[-1]
    tables, width = batch.block_tables, batch.block_tables.shape[1]
    of_chunk = jnp.arange(min(size // block_size, width), dtype=jnp.int32)
    columns = (begin // block_size)[:, None] + of_chunk
    prompts = None
    if batch.prompt_lens is not None:
        prompts = jnp.maximum(batch.prompt_lens[sequence] - begin, 0)
    return Ragged(
        block_tables=tables[sequence[:, None], jnp.minimum(columns, width - 1)],
        context_lens=jnp.where(owners.is_real, stop - begin, 0),
        query_start_loc=jnp.append(jnp.where(owners.is_real, tokens, total), total),
        prompt_lens=prompts,
    )


def _owners(batch: Ragged, starts: Int[Array, " S"], num_tokens: int, size: int) -> Owners:
    """The chunks of a step. There is room for all that so many tokens can be in."""
    count = len(starts)
    # A sequence with tokens is in one chunk, and in one more for each border among its tokens. Of
    # n tokens, at most 1 + (n - 2) / size have a border before them.
    room = count + min(count, num_tokens // 2) + num_tokens // size
    last = jnp.maximum(batch.context_lens - 1, 0) // size
    first = starts // size
    chunks = jnp.where(batch.context_lens > starts, last - first + 1, 0)
    ends = jnp.cumsum(chunks)
    places = jnp.arange(room, dtype=jnp.int32)
    before = places[:, None] >= ends  # one kernel, where a search is a loop
    sequence = jnp.minimum(before.sum(axis=1, dtype=jnp.int32), count - 1)
    number = first[sequence] + places - (ends - chunks)[sequence]
    is_real = places < ends[-1]
    return Owners(sequence, jnp.where(is_real, number * size, 0).astype(jnp.int32), is_real)
