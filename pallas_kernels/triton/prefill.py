"""Prefill: one program takes one tile of queries, for some query heads of a KV head.

The rows of the matrix products are queries x heads, so that each page is read once for several
heads, and a chunk of few queries still fills a tensor core. Most of a long context is seen by all
queries of a tile: only the stretches on the diagonal, and at the begin of a window, are masked.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from pallas_kernels.gpu_metadata import GpuMetadata
from pallas_kernels.triton.context import (
    Parts,
    locate,
    read_heads,
    read_keys,
    read_values,
    write_heads,
)
from pallas_kernels.triton.dialect import (
    SMALLEST,
    launch,
    load,
    next_power_of_two,
    program_id,
    store,
    when,
)
from pallas_kernels.triton.merge import Result
from pallas_kernels.triton.operands import Geometry, Operands
from pallas_kernels.triton.softmax import (
    LN2,
    LOG2E,
    Scoring,
    State,
    empty,
    gather,
    normalised,
    scores,
    scoring,
    value_scale,
)
from pallas_kernels.tuning import TritonPrefillConfig


class Tiles(NamedTuple):
    """The tiles, as in `GpuMetadata`, and the arrays of the call that say where they lie."""

    seq: Int[Array, " NT"]
    start: Int[Array, " NT"]
    context_lens: Int[Array, " S"]
    query_start_loc: Int[Array, " S+1"]


class Queries(NamedTuple):
    """The M rows of one program.

    Attributes:
        seq: their sequence.
        kv_head: their KV head.
        first, last: positions of the tile's first and last query.
        token: token of each row.
        head: query head of each row.
        position: position of each row's query.
        exists: false for rows beyond the sequence's queries or the group's heads.
    """

    seq: Int[Array, ""]
    kv_head: Int[Array, ""]
    first: Int[Array, ""]
    last: Int[Array, ""]
    token: Int[Array, " M"]
    head: Int[Array, " M"]
    position: Int[Array, " M"]
    exists: Bool[Array, " M"]


def heads_per_program(group: int, tile_queries: int, block_q: int) -> int:
    """Query heads of one KV head that one program takes: a power of two."""
    fit = max(block_q // tile_queries, 1)
    # At least as many rows as a tensor core takes.
    return max(min(next_power_of_two(group), fit), SMALLEST // tile_queries, 1)


def attend_tiles(
    operands: Operands,
    shape: Geometry,
    metadata: GpuMetadata,
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S+1"],
    *,
    config: TritonPrefillConfig,
    interpret: bool,
) -> Result:
    """Attention of the sequences with several query tokens; zeros and -inf for all other tokens."""
    tiles = Tiles(
        metadata.tile_seq,
        metadata.tile_start,
        context_lens.astype(jnp.int32),
        query_start_loc.astype(jnp.int32),
    )
    tokens, heads, _ = operands.q.shape
    blank = Result(jnp.zeros_like(operands.q), None)
    if shape.options.return_lse:
        blank = blank._replace(lse=jnp.full((tokens, heads), -jnp.inf, jnp.float32))
    size = heads_per_program(shape.group, metadata.tile_queries, config.block_q)
    programs = shape.kv_heads * -(-shape.group // size)
    result: Result = launch(
        partial(_program, shape=shape, config=config, queries=metadata.tile_queries, heads=size),
        (blank, operands, tiles),
        blank,
        name="paged_prefill",
        grid=(programs, len(tiles.seq)),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        interpret=interpret,
        in_place=True,
    )
    return result


def _program(
    blank: Result,
    operands: Operands,
    tiles: Tiles,
    result: Result,
    *,
    shape: Geometry,
    config: TritonPrefillConfig,
    queries: int,
    heads: int,
) -> None:
    del blank  # The result is the same memory.
    # The last tiles of a prompt see most, and programs start in order: begin with those.
    program, tile = program_id(0), tiles.seq.shape[0] - 1 - program_id(1)

    @when(tiles.seq[tile] < tiles.context_lens.shape[0])
    def _() -> None:
        mine = _queries(tiles, tile, program, shape, queries, heads)
        out, lse = _attend(operands, mine, shape, config.block_kv)
        index = (mine.token[:, None], mine.head[:, None])
        write_heads(result.out, index, shape.dim, mine.exists[:, None], out)
        if result.lse is not None:
            # A sink alone is no sum: a query that sees nothing has none.
            lse = jnp.where(mine.position < 0, -jnp.inf, lse * LN2)
            store(result.lse.at[mine.token, mine.head], lse, mask=mine.exists)


def _queries(
    tiles: Tiles, tile: Array, program: Array, shape: Geometry, queries: int, heads: int
) -> Queries:

    seq, start = tiles.seq[tile], tiles.start[tile]
    begin, end = tiles.query_start_loc[seq], tiles.query_start_loc[seq + 1]
    count = jnp.minimum(end - begin - start, queries)
    first = tiles.context_lens[seq] - (end - begin) + start
    chunks = -(-shape.group // heads)
    kv_head = lax.div(program, chunks)
    row = jnp.arange(queries * heads, dtype=jnp.int32)
    query = lax.div(row, heads)
    local = lax.rem(program, chunks) * heads + lax.rem(row, heads)
    return Queries(
        seq=seq,
        kv_head=kv_head,
        first=first,
        last=first + count - 1,
        token=begin + start + query,
        head=kv_head * shape.group + local,
        position=first + query,
        exists=(query < count) & (local < shape.group),
    )


def _attend(
    operands: Operands, mine: Queries, shape: Geometry, block_kv: int
) -> tuple[Parts, Array]:
    """Output and log2 of the sums of exponentials of all rows."""
    index = (mine.token[:, None], mine.head[:, None])
    q = read_heads(operands.q, index, shape.dim, mine.exists[:, None])
    how = scoring(operands, shape, mine.kv_head, mine.head, mine.exists)
    add = partial(_add_stretch, operands, mine, shape, q, how, block_kv)
    state = empty(len(mine.head), shape.dim)
    if operands.sinks is not None:
        sink = load(operands.sinks.at[mine.head], mine.exists, 0.0) * LOG2E
        state = state._replace(top=sink, total=jnp.ones_like(sink))

    # Steps from..end have something that some query sees; in clear..diagonal all see everything.
    end = lax.div(mine.last + block_kv, block_kv)
    diagonal = lax.div(mine.first + 1, block_kv)
    clear = jnp.int32(0)
    if shape.options.window is not None:
        begin = lax.div(jnp.maximum(mine.first - shape.options.window + 1, 0), block_kv)
        seen_by_last = jnp.maximum(mine.last - shape.options.window + 1, 0)
        clear = jnp.minimum(lax.div(seen_by_last + block_kv - 1, block_kv), end)
        state = lax.fori_loop(begin, clear, partial(add, masked=True), state)
    state = lax.fori_loop(clear, diagonal, partial(add, masked=False), state)
    state = lax.fori_loop(jnp.maximum(clear, diagonal), end, partial(add, masked=True), state)
    return normalised(state, value_scale(operands, mine.kv_head))


def _add_stretch(
    operands: Operands,
    mine: Queries,
    shape: Geometry,
    q: Parts,
    how: Scoring,
    block_kv: int,
    i: Array,
    state: State,
    *,
    masked: bool,
) -> State:
    """Attend to one stretch of the context."""
    key = i * block_kv + jnp.arange(block_kv, dtype=jnp.int32)
    mask = seen = None
    if masked:
        seen = key <= mine.last
        mask = key[None, :] <= mine.position[:, None]
        if shape.options.window is not None:
            seen &= key > mine.first - shape.options.window
            mask &= key[None, :] > mine.position[:, None] - shape.options.window
        # Rows beyond the last query would see slots that nobody has written.
        mask &= seen[None, :]
    where = locate(operands, shape, mine.seq, mine.kv_head, key, seen)
    distance = key[None, :] - mine.position[:, None]
    score = scores(q, read_keys(operands, shape, where), how, distance)
    return gather(state, score, mask, read_values(operands, shape, where))
