"""Sequences with several query tokens: tiles of queries against their context, warp-specialised.

A row of a tile is one query token and one head of the KV head's group, token by token. So the
group shares each page, and groups of any size fill the tensor core. A thread block takes `rows`
rows of one tile and KV head. Each computing warpgroup takes 64 rows, while one more warpgroup
copies pages into a ring of stages in shared memory. Only stages at the causal edge or at the
window's edge are masked, and stages that no row attends to are not read.

Predicted bound: 128 rows against 128 keys at D = 128 are 8.4 MFLOP, 2050 cycles of an
SM's tensor core (4096 a cycle), and 16384 exponentials, 1024 cycles of its special function units;
the other units take about as long. Two warpgroups overlap both kinds, in turns (ping-pong, in
`Ring.consume`). Without overlap this is half of the tensor core's rate; the aim is 60 % at 8k
tokens. Pages of 64 KB per 2050 cycles and SM are 7 TB/s, which must come from the L2 cache: the
parts of a tile and head run at the same time and read the same pages. docs/gpu.md has what an H100
reached, without ping-pong.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from pallas_kernels.mosaic import plgpu, softmax
from pallas_kernels.mosaic.metadata import ALIGNMENT
from pallas_kernels.mosaic.pages import Context
from pallas_kernels.mosaic.prefill_plan import REGISTERS, ROWS, Prefill, Span
from pallas_kernels.mosaic.ring import Ring, Rows


def attend_tiles(
    q: Float[Array, "K TPG D"],
    pages: Float[Array, "pages B D"],
    block_tables: Int[Array, "S W"],
    context_lens: Int[Array, " S"],
    query_start_loc: Int[Array, " S_plus_1"],
    seq_place: Int[Array, " S"],
    tile_seq: Int[Array, " NT"],
    tile_start: Int[Array, " NT"],
    layer: Int[Array, " 1"],
    slopes: Float[Array, "K parts_rows"],
    sinks: Float[Array, "K parts_rows"],
    kernel: Prefill,
) -> tuple[Float[Array, "K TPG D"], Float[Array, "NT K parts_rows"]]:
    """Attention of the sequences with several query tokens; arbitrary for other tokens.

    Rows are query tokens times the G heads of a KV head's group, token by token; the tokens are
    in the places of `MosaicMetadata`. `slopes` and `sinks` have one number per row of a tile. The
    log-sum-exps are ordered by tile.
    """
    kv_heads, tiles = q.shape[0], tile_seq.shape[0]
    out: tuple[Array, Array] = plgpu.kernel(
        functools.partial(_body, kernel),
        interpret=kernel.interpret,
        out_type=(
            jax.ShapeDtypeStruct(q.shape, q.dtype),
            jax.ShapeDtypeStruct((tiles, kv_heads, kernel.parts * kernel.rows), jnp.float32),
        ),
        scratch_types=kernel.scratch(q.dtype),
        grid=(tiles, kv_heads, kernel.parts),
        grid_names=("tile", "head", "part"),
        num_threads=kernel.warpgroups + 1,
        thread_name="warpgroup",
    )(
        q,
        pages,
        block_tables,
        context_lens,
        query_start_loc,
        seq_place,
        tile_seq,
        tile_start,
        layer,
        slopes,
        sinks,
    )
    return out


def _body(
    kernel: Prefill,
    q: Any,  # [K, TP*G, D]
    pages: Any,  # [L*2*N*K, B, D]
    block_tables: Any,  # [S, W]
    context_lens: Any,  # [S]
    query_start_loc: Any,  # [S+1]
    seq_place: Any,  # [S]
    tile_seq: Any,  # [NT]
    tile_start: Any,  # [NT]
    layer: Any,  # [1]
    slopes: Any,  # [K, parts * rows]
    sinks: Any,  # [K, parts * rows]
    out: Any,  # [K, TP*G, D]
    lse: Any,  # [NT, K, parts * rows]
    **scratch: Any,
) -> None:
    # Late tiles have the most context. They run first, so that short ones fill the gaps at the end.
    tile = tile_seq.shape[0] - 1 - lax.axis_index("tile")
    head, warpgroup = lax.axis_index("head"), lax.axis_index("warpgroup")
    first_row = lax.axis_index("part") * kernel.rows
    num_seqs = block_tables.shape[0]
    seq = jnp.minimum(tile_seq[tile], num_seqs - 1)
    begin, end = query_start_loc[seq], query_start_loc[seq + 1]
    queries = jnp.minimum(end - begin - tile_start[tile], kernel.tile_queries)

    @pl.when((tile_seq[tile] < num_seqs) & (first_row < queries * kernel.group))
    def _() -> None:
        position = context_lens[seq] - (end - begin) + tile_start[tile]
        span = Span.of_rows(kernel, position, first_row, queries)
        context = Context(
            kernel.paging, pages, block_tables, seq, layer[0], head, span.low, span.high
        )
        ring = Ring(kernel, context, span, scratch)

        @pl.when(warpgroup == kernel.warpgroups)
        def _() -> None:
            if kernel.warpgroups in REGISTERS:
                plgpu.set_max_registers(REGISTERS[kernel.warpgroups][1], action="decrease")
            ring.produce()

        @pl.when(warpgroup < kernel.warpgroups)
        def _() -> None:
            if kernel.warpgroups in REGISTERS:
                plgpu.set_max_registers(REGISTERS[kernel.warpgroups][0], action="increase")
            mine = first_row + warpgroup * ROWS
            row = (seq_place[seq] + tile_start[tile]) * kernel.group + mine
            row = pl.multiple_of(row, ALIGNMENT)
            staged, log_sums = (scratch[name].at[warpgroup] for name in ("queries", "log_sums"))
            arrived = scratch["queries_arrived"].at[warpgroup]
            plgpu.copy_gmem_to_smem(q.at[head, pl.ds(row, ROWS)], staged, arrived)
            of_rows = [x.at[head, pl.ds(mine, ROWS)] for x in (slopes, sinks)]
            rows = Rows(
                queries=staged,
                position=position + _token(kernel, mine),
                slopes=plgpu.load_rows(of_rows[0]) if kernel.has_slopes else None,
                sinks=plgpu.load_rows(of_rows[1]) if kernel.has_sinks else None,
                warpgroup=warpgroup,
            )
            plgpu.barrier_wait(arrived)
            result, lse_of_rows = softmax.finish(ring.consume(rows))
            log_sums[...] = lse_of_rows
            staged[...] = result.astype(staged.dtype)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(log_sums, lse.at[tile, head, pl.ds(mine, ROWS)])
            _store_rows(staged, out.at[head], row, queries * kernel.group - mine)
            plgpu.wait_smem_to_gmem(0)


def _token(kernel: Prefill, first_row: jax.Array) -> jax.Array:
    """Query token of each of the 64 rows from `first_row` on, relative to the tile's first."""
    return plgpu.div(first_row + plgpu.indices((ROWS,), 0), kernel.group)


def _store_rows(staged: Any, out: Any, row: jax.Array, count: jax.Array) -> None:
    """Write the first `count` of 64 rows, rounded up to whole groups of eight."""

    @pl.when(count >= ROWS)
    def _() -> None:
        plgpu.copy_smem_to_gmem(staged, out.at[pl.ds(row, ROWS)])

    for start in range(0, ROWS, ALIGNMENT):
        group = staged.at[pl.ds(start, ALIGNMENT)]
        to = out.at[pl.ds(row + start, ALIGNMENT)]
        pl.when((count < ROWS) & (start < count))(
            functools.partial(plgpu.copy_smem_to_gmem, group, to)
        )
