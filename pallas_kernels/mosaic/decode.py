"""Decode rows: one query token against its whole context, split over several thread blocks.

One warpgroup works on (row, KV head, split). The query heads of the KV head are the rows of one
WGMMA tile, so each page is read once for all of them. The warpgroup starts the copies of pages
`stages` ahead into a ring in shared memory, and computes on pages that have arrived. Two or three
such thread blocks share an SM and hide each other's waits.

Predicted bound: a token of context is 4 * D bytes per KV head in 16-bit numbers (512 at D = 128).
At 4.8 TB/s an H200 reads 9.4e9 tokens a second, so each SM reads a block_kv of 64 in 0.9 us, 1600
cycles. The two products of 64 rows take 64 * 64 * 128 * 4 / 4096 = 512 cycles of the tensor core,
the 64 * 64 exponentials 256 of the special function units, the rest of the softmax about 300. The
sum is below the copy's time, but only if thread blocks overlap. docs/gpu.md has what an
H100 reached.
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
from pallas_kernels.mosaic.pages import Context, Paging

# Rows of a WGMMA tile: query heads of one KV head, and padding.
ROWS = 64
# Fewest tokens of context for which a thread block of its own pays.
SMALLEST_PART = 512


@dataclass(frozen=True)
class Decode:
    """Static parameters of the decode kernel.

    Attributes:
        paging: sizes of the cache and of a stage.
        options: options of the call.
        stages: stages of the ring.
        splits: largest number of parts of a context.
        heads: query heads of one KV head, rounded up to a multiple of 8.
        has_slopes: whether ALiBi slopes are given.
        has_sinks: whether sinks are given.
        interpret: whether the kernel runs in the interpreter.
    """

    paging: Paging
    options: Options
    stages: int
    splits: int
    heads: int
    has_slopes: bool
    has_sinks: bool
    interpret: bool

    def low(self, context_len: jax.Array) -> jax.Array:
        """First position that the last token of a context attends to."""
        if self.options.window is None:
            return jnp.zeros_like(context_len)
        return jnp.maximum(context_len - self.options.window, 0)

    def part(self, context_len: jax.Array, split: jax.Array) -> tuple[jax.Array, jax.Array]:
        """First block_kv of a split and its end, exclusive; equal if the split has no work."""
        size = self.paging.block_kv
        first = plgpu.div(self.low(context_len), size)
        blocks = plgpu.div(context_len + (size - 1), size) - first
        parts = jnp.minimum(
            plgpu.div(blocks * size + (SMALLEST_PART - 1), SMALLEST_PART), self.splits
        )
        begin = lax.div(blocks * split, jnp.maximum(parts, 1))
        end = lax.div(blocks * (split + 1), jnp.maximum(parts, 1))
        return first + begin, first + jnp.where(split < parts, end, begin)

    def scratch(self, dtype: Any) -> dict[str, Any]:
        """Shared memory and barriers of one thread block."""
        sizes = self.paging
        ring = plgpu.tiles((self.stages, sizes.block_kv, sizes.head_dim), dtype)
        arrived = plgpu.Barrier(num_arrivals=sizes.copies, num_barriers=self.stages)
        out = plgpu.tiles((ROWS, sizes.head_dim), jnp.float32)
        return {
            # Results reuse the keys' memory, so that two thread blocks fit on an SM.
            "keys_or_results": plgpu.RefUnion(ring, [out, plgpu.SMEM((ROWS,), jnp.float32)]),
            "values": ring,
            "queries": plgpu.tiles((ROWS, sizes.head_dim), dtype),
            "weights": plgpu.SMEM((ROWS, sizes.block_kv), dtype) if self.interpret else None,
            "queries_arrived": plgpu.Barrier(),
            "keys_arrived": arrived,
            "values_arrived": arrived,
        }


def attend_rows(
    q: Float[Array, "R K G D"],
    pages: Float[Array, "pages B D"],
    block_tables: Int[Array, "S W"],
    row_seq: Int[Array, " R"],
    row_context_len: Int[Array, " R"],
    layer: Int[Array, " 1"],
    slopes: Float[Array, "K 64"],
    sinks: Float[Array, "K 64"],
    kernel: Decode,
) -> tuple[Float[Array, "splits R K G D"], Float[Array, "splits R K G"]]:
    """Partial attention of all decode rows and its log-sum-exp, one partial per split.

    G is `kernel.heads`. Splits without work have a log-sum-exp of -inf and arbitrary outputs.
    """
    rows, kv_heads, heads, dim = q.shape
    grid = (kernel.splits, rows, kv_heads)
    out, lse = plgpu.kernel(
        functools.partial(_body, kernel),
        interpret=kernel.interpret,
        out_type=(
            jax.ShapeDtypeStruct((*grid, heads, dim), jnp.float32),
            jax.ShapeDtypeStruct((*grid, ROWS), jnp.float32),
        ),
        scratch_types=kernel.scratch(q.dtype),
        grid=grid,
        grid_names=("split", "row", "head"),
    )(q, pages, block_tables, row_seq, row_context_len, layer, slopes, sinks)
    split = jnp.arange(kernel.splits, dtype=jnp.int32)[:, None]
    begin, end = kernel.part(*jnp.broadcast_arrays(row_context_len, split))
    return out, jnp.where((begin < end)[..., None, None], lse[..., :heads], -jnp.inf)


@dataclass(frozen=True)
class _Part:
    """One warpgroup's work: the block_kv numbers begin:end of a context.

    Attributes:
        kernel: static parameters.
        context: where the keys and values are.
        begin: first block_kv.
        end: last block_kv plus 1.
        slopes: ALiBi slopes of the rows.
        keys: the keys' ring of stages in shared memory.
        scratch: the other shared memory, with the values' ring, and the barriers.
    """

    kernel: Decode
    context: Context
    begin: jax.Array
    end: jax.Array
    slopes: jax.Array | None
    keys: Any
    scratch: dict[str, Any]

    def fill(self) -> None:
        """Start the copies of the first stages."""
        for slot in range(self.kernel.stages):
            block = self.begin + slot
            self._copy(block, self.context.find(block), 0, slot)
            self._copy(block, self.context.find(block), 1, slot)

    def _copy(self, block: jax.Array, found: list[jax.Array], which: int, slot: Any) -> None:
        name = ("keys", "values")[which]
        ring = self.keys if which == 0 else self.scratch["values"]

        @pl.when(block < self.end)
        def _() -> None:
            arrived = self.scratch[f"{name}_arrived"].at[slot]
            self.context.copy(block, found, which, ring.at[slot], arrived)

    def attend(self, block: jax.Array, running: softmax.Running) -> softmax.Running:
        """Attend to one block_kv, and start the copies of the one that takes its stage."""
        slot = plgpu.rem(block - self.begin, self.kernel.stages)
        ahead = block + self.kernel.stages
        # Read the table early: the latency is hidden by the products.
        found = self.context.find(ahead)
        plgpu.barrier_wait(self.scratch["keys_arrived"].at[slot])
        products = plgpu.product(self.scratch["queries"], self.keys.at[slot].transpose((1, 0)))
        self._copy(ahead, found, 0, slot)
        running, weights = softmax.add_scores(running, *self._scores(block, products))
        values = self.scratch["values"].at[slot]
        weights = weights.astype(values.dtype)
        plgpu.barrier_wait(self.scratch["values_arrived"].at[slot])
        pl.when(self.context.has_edge(block))(lambda: self.context.clear_outside(block, values))
        out = plgpu.add_product(running.out, weights, values, self.scratch["weights"])
        self._copy(ahead, found, 1, slot)
        return running._replace(out=out)

    def _scores(self, block: jax.Array, products: jax.Array) -> tuple[jax.Array, float]:
        """Scores of one block_kv, minus infinity for positions not attended to; see `softmax`."""
        position = block * self.kernel.paging.block_kv + plgpu.indices(products.shape, 1)
        distance = position - (self.context.high - 1)
        raw, factor = softmax.scores(products, distance, self.slopes, self.kernel.options)
        visible = (position >= self.context.low) & (position < self.context.high)
        return jnp.where(visible, raw, -jnp.inf), factor


def _body(
    kernel: Decode,
    q: Any,  # [R, K, G, D]
    pages: Any,  # [L*2*N*K, B, D]
    block_tables: Any,  # [S, W]
    row_seq: Any,  # [R]
    row_context_len: Any,  # [R]
    layer: Any,  # [1]
    slopes: Any,  # [K, 64]
    sinks: Any,  # [K, 64]
    out: Any,  # [splits, R, K, G, D]
    lse: Any,  # [splits, R, K, 64]
    **scratch: Any,
) -> None:
    split, row, head = (lax.axis_index(name) for name in ("split", "row", "head"))
    context_len = row_context_len[row]
    begin, end = kernel.part(context_len, split)

    @pl.when(begin < end)
    def _() -> None:
        context = Context(
            kernel.paging,
            pages,
            block_tables,
            row_seq[row],
            layer[0],
            head,
            kernel.low(context_len),
            context_len,
        )
        queries, arrived = scratch["queries"], scratch["queries_arrived"]
        plgpu.copy_gmem_to_smem(q.at[row, head], queries.at[pl.ds(0, kernel.heads)], arrived)
        keys, (staged, staged_lse) = scratch.pop("keys_or_results")
        row_slopes = plgpu.load_rows(slopes.at[head]) if kernel.has_slopes else None
        part = _Part(kernel, context, begin, end, row_slopes, keys, scratch)
        part.fill()
        plgpu.barrier_wait(arrived)
        row_sinks = None
        if kernel.has_sinks:
            # Only the first part counts the sink.
            row_sinks = plgpu.load_rows(sinks.at[head]) + jnp.where(split == 0, 0.0, -jnp.inf)
        running = softmax.start(ROWS, kernel.paging.head_dim, row_sinks)
        running = lax.fori_loop(begin, end, part.attend, running)
        result, log_sums = softmax.finish(running)
        staged[...] = result
        staged_lse[...] = log_sums
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(staged.at[pl.ds(0, kernel.heads)], out.at[split, row, head])
        plgpu.copy_smem_to_gmem(staged_lse, lse.at[split, row, head])
        plgpu.wait_smem_to_gmem(0)
