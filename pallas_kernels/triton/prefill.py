"""Prefill: one program attends with one tile of queries, for some query heads of a KV head.

The rows of the matrix products are queries x heads. So each page is read once for several heads,
and a chunk of few queries still fills a tensor core. All queries of a tile see most of a long
context: only the steps on the diagonal, and at the beginning of a window, are masked.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.gpu_metadata import GpuMetadata
from pallas_kernels.triton.dialect import (
    launch,
    load,
    next_power_of_two,
    program_id,
    store,
    when,
)
from pallas_kernels.triton.heads import Parts, write_heads
from pallas_kernels.triton.merge import Result
from pallas_kernels.triton.operands import Geometry, Operands
from pallas_kernels.triton.softmax import LN2, LOG2E, normalised
from pallas_kernels.triton.steps import Rows, attend_steps, make_task, start, value_scale
from pallas_kernels.tuning import TritonPrefillConfig


class Tiles(NamedTuple):
    """The tiles, as in `GpuMetadata`, and the call's arrays that give their positions.

    Attributes:
        queries: each sequence's first queries, which are in tiles.
    """

    seq: Int[Array, " NT"]
    start: Int[Array, " NT"]
    queries: Int[Array, " S"]
    context_lens: Int[Array, " S"]
    query_start_loc: Int[Array, " S+1"]


class Tiling(NamedTuple):
    """The part of a tile in one program; its rows are queries times heads.

    Attributes:
        queries: queries of a program.
        heads: query heads of a program, a power of two; all of one KV head.
        parts: programs that share the queries of a tile.
    """

    queries: int
    heads: int
    parts: int


def tiling(group: int, tile_queries: int, block_q: int) -> Tiling:
    """Cuts tiles of `tile_queries` queries x `group` heads into programs of at most `block_q` rows.

    A small group gives fewer rows, but at least a tile's queries: enough for a tensor core.
    """
    queries = min(tile_queries, block_q)
    heads = min(next_power_of_two(group), block_q // queries)
    return Tiling(queries, heads, tile_queries // queries)


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
    """Attention of the queries in tiles; zeros and -inf for all other tokens."""
    tiles = Tiles(
        metadata.tile_seq,
        metadata.tile_start,
        metadata.other_queries,
        context_lens.astype(jnp.int32),
        query_start_loc.astype(jnp.int32),
    )
    tokens, heads, _ = operands.q.shape
    blank = Result(jnp.zeros_like(operands.q), None)
    if shape.options.return_lse:
        blank = blank._replace(lse=jnp.full((tokens, heads), -jnp.inf, jnp.float32))
    cut = tiling(shape.group, metadata.tile_queries, config.block_q)
    programs = shape.kv_heads * -(-shape.group // cut.heads)
    result: Result = launch(
        partial(_program, shape=shape, block_kv=config.block_kv, cut=cut),
        (blank, operands, tiles),
        blank,
        name="paged_prefill",
        grid=(programs, len(tiles.seq) * cut.parts),
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
    block_kv: int,
    cut: Tiling,
) -> None:
    del blank  # The result is the same memory.
    # The last tiles of a prompt see most, and programs start in order: begin with those.
    program, part = program_id(0), len(tiles.seq) * cut.parts - 1 - program_id(1)
    tile = lax.div(part, cut.parts)
    offset = tiles.start[tile] + lax.rem(part, cut.parts) * cut.queries
    seq, num_seqs = tiles.seq[tile], len(tiles.context_lens)
    # Of a tile that does not exist the sequence is S, and has no queries.
    queries = jnp.where(seq < num_seqs, tiles.queries[jnp.minimum(seq, num_seqs - 1)], 0)

    @when(offset < queries)
    def _() -> None:
        rows = _rows(tiles, seq, offset, program, shape, cut)
        out, lse = _attend(operands, rows, shape, block_kv)
        write_heads(result.out, rows.place(), shape.dim, rows.exists[:, None], out)
        if result.lse is not None:
            # A query without context has a log-sum-exp of -inf even if there is a sink.
            lse = jnp.where(rows.position < 0, -jnp.inf, lse * LN2)
            store(result.lse.at[rows.token, rows.head], lse, rows.exists)


def _rows(
    tiles: Tiles, seq: Array, offset: Array, program: Array, shape: Geometry, cut: Tiling
) -> Rows:
    """A sequence's queries from `offset` on, each once per query head of the program."""
    begin, end = tiles.query_start_loc[seq], tiles.query_start_loc[seq + 1]
    count = jnp.minimum(tiles.queries[seq] - offset, cut.queries)
    first = tiles.context_lens[seq] - (end - begin) + offset
    chunks = -(-shape.group // cut.heads)
    kv_head = lax.div(program, chunks)
    row = jnp.arange(cut.queries * cut.heads, dtype=jnp.int32)
    query = lax.div(row, cut.heads)
    local = lax.rem(program, chunks) * cut.heads + lax.rem(row, cut.heads)
    return Rows(
        seq=seq,
        kv_head=kv_head,
        first=first,
        last=first + count - 1,
        position=first + query,
        token=begin + offset + query,
        head=kv_head * shape.group + local,
        exists=(query < count) & (local < shape.group),
    )


def _attend(
    operands: Operands, rows: Rows, shape: Geometry, block_kv: int
) -> tuple[Parts, Float[Array, " M"]]:
    """The output of all rows, and log2 of their sums of exponentials."""
    task = make_task(operands, shape, rows, block_kv)
    window = shape.options.window
    # Some query sees each step in begin:end; all queries see the steps in clear:diagonal in full.
    begin = clear = jnp.int32(0)
    diagonal = lax.div(rows.first + 1, block_kv)
    end = lax.div(rows.last + block_kv, block_kv)
    if window is not None:
        begin = lax.div(jnp.maximum(rows.first - window + 1, 0), block_kv)
        seen_by_last = jnp.maximum(rows.last - window + 1, 0)
        clear = jnp.minimum(lax.div(seen_by_last + block_kv - 1, block_kv), end)
    blocks, state = start(task, begin)
    if operands.sinks is not None:
        sink = load(operands.sinks.at[rows.head], rows.exists, 0.0) * LOG2E
        state = state._replace(top=sink, total=jnp.ones_like(sink))
    carry = (blocks, state)
    if window is not None:
        carry = attend_steps(task, begin, clear, carry, masked=True)
    carry = attend_steps(task, clear, diagonal, carry, masked=False)
    carry = attend_steps(task, jnp.maximum(clear, diagonal), end, carry, masked=True)
    return normalised(carry[1], value_scale(task))
