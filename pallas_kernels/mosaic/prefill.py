"""Sequences with several query tokens: tiles of queries against their context, warp-specialised.

A row of a tile is one query token and one head of the KV head's group, token by token, so that
the group shares each page and fills the tensor core whatever its size. A block of threads takes
`rows` such rows of one tile and KV head: each computing warpgroup 64 of them, while one more
warpgroup copies pages into a ring of stages in shared memory. Only stages at the causal edge or
at the window's are masked, and stages that no row sees are not read.

Bound, before anything was measured: 128 rows against 128 keys at D = 128 are 8.4 MFLOP, 2050 cycles
of an SM's tensor core (4096 a cycle), and 16384 exponentials, 1024 cycles of its special function
units, beside about as much of the other units; two warpgroups overlap the two kinds. With nothing
hidden that is half of the tensor core's rate; the aim is 60 % of it at 8k tokens. Pages: 64 KB per
2050 cycles and SM is 7 TB/s, which the L2 cache must serve: parts of one tile and head run side
by side and read the same pages.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from pallas_kernels.call import Options
from pallas_kernels.mosaic import plgpu, softmax
from pallas_kernels.mosaic.metadata import ALIGNMENT
from pallas_kernels.mosaic.pages import Context, Paging

# Rows of one warpgroup.
ROWS = 64
# Registers of a thread that computes and of one that copies, by the number of computing
# warpgroups: an SM has 65536.
REGISTERS = {2: (232, 40), 3: (160, 32)}


@dataclass(frozen=True)
class Prefill:
    """What is static of the prefill kernel.

    Attributes:
        paging: sizes of the cache and of a stage.
        options: of the call.
        stages: stages of the ring.
        warpgroups: computing warpgroups.
        group: query heads of one KV head.
        tile_queries: query tokens of a tile.
        has_slopes: ALiBi slopes are given.
        has_sinks: sinks are given.
        interpret: for the interpreter.
    """

    paging: Paging
    options: Options
    stages: int
    warpgroups: int
    group: int
    tile_queries: int
    has_slopes: bool
    has_sinks: bool
    interpret: bool

    @property
    def rows(self) -> int:
        """Rows of one block of threads."""
        return ROWS * self.warpgroups

    @property
    def parts(self) -> int:
        """Blocks of threads of one tile and KV head."""
        return -(-self.tile_queries * self.group // self.rows)

    def scratch(self, dtype: Any) -> dict[str, Any]:
        """Shared memory and barriers of one block of threads."""
        sizes, groups = self.paging, self.warpgroups
        ring = plgpu.tiles((self.stages, sizes.block_kv, sizes.head_dim), dtype)
        arrived = plgpu.Barrier(num_arrivals=sizes.copies, num_barriers=self.stages)
        free = plgpu.Barrier(num_arrivals=groups, num_barriers=self.stages)
        weights = plgpu.SMEM((groups, ROWS, sizes.block_kv), dtype)
        return {
            # And the output, in the end.
            "queries": plgpu.tiles((groups, ROWS, sizes.head_dim), dtype),
            "keys": ring,
            "values": ring,
            "log_sums": plgpu.SMEM((groups, ROWS), jnp.float32),
            "weights": weights if self.interpret else None,
            "queries_arrived": plgpu.Barrier(num_barriers=groups),
            "keys_arrived": arrived,
            "values_arrived": arrived,
            "keys_free": free,
            "values_free": free,
            "cleared": plgpu.Barrier(num_arrivals=groups),
        }


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
    """Attention of the sequences in tiles; arbitrary for the tokens of other sequences.

    Rows are query tokens times the G heads of a KV head's group, token by token; the tokens lie
    in the places of `MosaicMetadata`. `slopes` and `sinks` stand for the rows of a tile. The
    log-sum-exps lie tile by tile.
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
    tables: Any,  # [S, W]
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
    # Late tiles have the most context: they go first, and short ones fill the gaps at the end.
    tile = tile_seq.shape[0] - 1 - lax.axis_index("tile")
    head, warpgroup = lax.axis_index("head"), lax.axis_index("warpgroup")
    first_row = lax.axis_index("part") * kernel.rows
    num_seqs = tables.shape[0]
    seq = jnp.minimum(tile_seq[tile], num_seqs - 1)
    begin, end = query_start_loc[seq], query_start_loc[seq + 1]
    queries = jnp.minimum(end - begin - tile_start[tile], kernel.tile_queries)

    @pl.when((tile_seq[tile] < num_seqs) & (first_row < queries * kernel.group))
    def _() -> None:
        position = context_lens[seq] - (end - begin) + tile_start[tile]
        span = Span.of_rows(kernel, position, first_row, queries)
        context = Context(kernel.paging, pages, tables, seq, layer[0], head, span.low, span.high)
        ring = _Ring(kernel, context, span, scratch)

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
            rows = _Rows(
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
    """Query token of each of 64 rows, counted from the tile's first."""
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


@dataclass(frozen=True)
class Span:
    """What the rows of one block of threads see of the context.

    Attributes:
        low: first position that any row sees.
        high: position after the last one.
        first: first block_kv with something to see.
        inner: the first that all rows see all of.
        outer: the first after those that is not seen by all.
        last: the one to stop before.
    """

    low: jax.Array
    high: jax.Array
    first: jax.Array
    inner: jax.Array
    outer: jax.Array
    last: jax.Array

    @staticmethod
    def of_rows(
        kernel: Prefill, position: jax.Array, first_row: jax.Array, queries: jax.Array
    ) -> "Span":
        """`position` is that of the tile's first query, `queries` are those of the tile."""
        size, window = kernel.paging.block_kv, kernel.options.window
        begin = position + plgpu.div(first_row, kernel.group)
        last_query = plgpu.div(first_row + (kernel.rows - 1), kernel.group)
        end = position + jnp.minimum(last_query + 1, queries)
        last = plgpu.div(end + (size - 1), size)
        if window is None:
            low = first = inner = jnp.zeros_like(begin)
        else:
            low = jnp.maximum(begin - (window - 1), 0)
            first = plgpu.div(low, size)
            inner = plgpu.div(jnp.maximum(end - window, 0) + (size - 1), size)
            inner = jnp.minimum(inner, last)
        outer = jnp.clip(plgpu.div(begin + 1, size), inner, last)
        return Span(low, end, first, inner, outer, last)


@dataclass(frozen=True)
class _Rows:
    """The 64 rows of one warpgroup.

    Attributes:
        queries: in shared memory.
        position: of each row's query.
        slopes: ALiBi slopes.
        sinks: sinks.
        warpgroup: which one.
    """

    queries: Any
    position: jax.Array
    slopes: jax.Array | None
    sinks: jax.Array | None
    warpgroup: jax.Array


@dataclass(frozen=True)
class _Ring:
    """Stages of keys and values in shared memory, filled by one warpgroup, read by the others."""

    kernel: Prefill
    context: Context
    span: Span
    scratch: dict[str, Any]

    def produce(self) -> None:
        """Copy what the rows see, stage by stage."""

        def fill(block: jax.Array, _: None) -> None:
            turn = block - self.span.first
            slot = plgpu.rem(turn, self.kernel.stages)
            found = self.context.find(block)
            for which, name in enumerate(("keys", "values")):
                free = self.scratch[f"{name}_free"].at[slot]
                pl.when(turn >= self.kernel.stages)(functools.partial(plgpu.barrier_wait, free))
                arrived = self.scratch[f"{name}_arrived"].at[slot]
                self.context.copy(block, found, which, self.scratch[name].at[slot], arrived)

        lax.fori_loop(self.span.first, self.span.last, fill, None)

    def consume(self, rows: _Rows) -> softmax.Running:
        """Attend to all stages."""
        span = self.span
        edge = functools.partial(self._attend, rows, True)
        inside = functools.partial(self._attend, rows, False)
        running: softmax.Running = softmax.start(ROWS, self.kernel.paging.head_dim, rows.sinks)
        if self.kernel.options.window is not None:
            running = lax.fori_loop(span.first, span.inner, edge, running)
        running = lax.fori_loop(span.inner, span.outer, inside, running)
        running = lax.fori_loop(span.outer, span.last, edge, running)
        return running

    def _attend(
        self, rows: _Rows, edge: bool, block: jax.Array, running: softmax.Running
    ) -> softmax.Running:
        slot = plgpu.rem(block - self.span.first, self.kernel.stages)
        keys, values = self.scratch["keys"].at[slot], self.scratch["values"].at[slot]
        plgpu.barrier_wait(self.scratch["keys_arrived"].at[slot])
        products = plgpu.product(rows.queries, keys.transpose((1, 0)))
        plgpu.barrier_arrive(self.scratch["keys_free"].at[slot])
        raw, factor = self._scores(rows, edge, block, products)
        running, weights = softmax.add_scores(running, raw, factor)
        weights = weights.astype(values.dtype)
        plgpu.barrier_wait(self.scratch["values_arrived"].at[slot])
        if edge:
            self._clear(rows, block, values)
        staging = self.scratch["weights"]
        staging = None if staging is None else staging.at[rows.warpgroup]
        out = plgpu.add_product(running.out, weights, values, staging)
        plgpu.barrier_arrive(self.scratch["values_free"].at[slot])
        return running._replace(out=out)

    def _scores(
        self, rows: _Rows, edge: bool, block: jax.Array, products: jax.Array
    ) -> tuple[jax.Array, float]:
        """Scores of one stage; minus infinity for what a row does not see."""
        options = self.kernel.options
        position = block * self.kernel.paging.block_kv + plgpu.indices(products.shape, 1)
        distance = position - plgpu.across(rows.position, products.shape[1])
        raw, factor = softmax.scores(products, distance, rows.slopes, options)
        if edge:
            visible = distance <= 0
            if options.window is not None:
                visible &= distance > -options.window
            raw = jnp.where(visible, raw, -jnp.inf)
        return raw, factor

    def _clear(self, rows: _Rows, block: jax.Array, values: Any) -> None:
        """Zero the values that no row sees: one warpgroup does it, and all wait for it."""

        @pl.when(self.context.has_edge(block))
        def _() -> None:
            first = rows.warpgroup == 0
            pl.when(first)(functools.partial(self.context.clear_outside, block, values))
            cleared = self.scratch["cleared"]
            plgpu.barrier_arrive(cleared)
            plgpu.barrier_wait(cleared)
