"""What adapters add to products, B (A x): two kernels, and a sum of XLA's between them.

*Shrink*: a thread block takes 64 rows of x, a chunk of its columns and 16 ranks. It keeps the rows
in shared memory and multiplies them with A of each adapter that one of them has, one adapter after
another. Each row keeps the sum of its own adapter. XLA adds the chunks' sums.

*Expand*: a thread block takes 64 rows and up to 128 columns of the product. It multiplies the rows'
sums with B of each of the rows' adapters; each row adds its own to the product.

So rows are neither sorted nor moved, only slots that have rows are read, and these straight out of
the stack of layers. A row's sums have the same order in any company. Sums are multiplied as two
numbers of bfloat16, which hold 16 bits of each, so that B (A x) is rounded once, to the product.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from pallas_kernels.mosaic import plgpu
from pallas_kernels.mosaic.low_rank_plan import (
    ALIGNMENT,
    LANES,
    ROWS,
    STAGES,
    Halves,
    Tiles,
    chunk_of,
    panels_of,
    rows_of,
)


def add(
    out: Float[Array, "T out"],
    x: Float[Array, "T in"],
    a: Float[Array, "L S blocks pairs 32"],
    b: Float[Array, "L S panels rows 32"],
    tiles: Tiles,
    layer: Int[Array, ""],
    halves: Halves,
    *,
    interpret: bool,
) -> Float[Array, "T out"]:
    """`add_low_rank` on checked arguments."""
    rows = rows_of(len(x))
    more = ((0, -len(x) % rows), (0, 0))
    sums = _shrink(jnp.pad(x, more), a, tiles, layer, rows, interpret)
    found = _expand(jnp.pad(out, more), _in_two(sums), b, tiles, layer, halves, rows, interpret)
    return found[: len(out)]


def _in_two(sums: Float[Array, "splits T ranks"]) -> Float[Array, "2 T ranks"]:
    """The sum as two numbers of bfloat16: its first bits, and those behind them."""
    total = functools.reduce(jnp.add, sums)
    bits = lax.bitcast_convert_type(total, jnp.uint32) & jnp.uint32(0xFFFF0000)
    first = lax.bitcast_convert_type(bits, jnp.float32)
    return jnp.stack([first, total - first]).astype(jnp.bfloat16)


def _shrink(
    x: Float[Array, "T in"],
    a: Float[Array, "L S blocks pairs 32"],
    tiles: Tiles,
    layer: Int[Array, ""],
    rows: int,
    interpret: bool,
) -> Float[Array, "splits T ranks"]:
    """Sums over chunks of columns. Of tiles without adapters they may be anything."""
    size, (layers, slots, blocks) = x.shape[1], a.shape[:3]
    chunk = chunk_of(size)
    sums: Array = plgpu.kernel(
        functools.partial(_shrink_body, layers, slots, blocks, rows),
        interpret=interpret,
        out_type=jax.ShapeDtypeStruct((size // chunk, len(x), LANES * blocks), jnp.float32),
        scratch_types={
            "x_chunk": plgpu.tiles((ROWS, chunk), x.dtype, LANES),
            "a_chunks": plgpu.tiles((STAGES, chunk, LANES), x.dtype),
            "staged": plgpu.tiles((ROWS, LANES), jnp.float32),
            "x_arrived": plgpu.Barrier(),
            "a_arrived": plgpu.Barrier(num_barriers=STAGES),
        },
        grid=(len(x) // rows, blocks, size // chunk),
        grid_names=("tile", "block", "split"),
    )(x, a.reshape(-1, size, LANES), *tiles, layer[None])
    return sums


def _shrink_body(
    layers: int,
    slots: int,
    blocks: int,
    rows: int,
    x: Any,  # [T, in]
    a: Any,  # [L * S * blocks, in, 16]
    row_slot: Any,  # [NT * 64]
    count: Any,  # [NT]
    tile_slots: Any,  # [NT, K]
    layer: Any,  # [1]
    sums: Any,  # [splits, T, blocks * 16]
    *,
    x_chunk: Any,
    a_chunks: Any,
    staged: Any,
    x_arrived: Any,
    a_arrived: Any,
) -> None:
    tile, block, split = (lax.axis_index(name) for name in ("tile", "block", "split"))
    busy, chunk = count[tile], x_chunk.shape[1]
    number = jnp.clip(layer[0], 0, layers - 1) * slots
    columns = pl.ds(split * chunk, chunk)
    own_rows = pl.ds(pl.multiple_of(tile * rows, ALIGNMENT), rows)

    def fetch(i: Any, stage: Any) -> None:
        matrix = (number + tile_slots[tile, i]) * blocks + block
        plgpu.copy_gmem_to_smem(a.at[matrix, columns], a_chunks.at[stage], a_arrived.at[stage])

    @pl.when(busy > 0)
    def _() -> None:
        plgpu.copy_gmem_to_smem(x.at[own_rows, columns], x_chunk.at[pl.ds(0, rows)], x_arrived)
        for ahead in range(min(STAGES, slots)):
            pl.when(ahead < busy)(functools.partial(fetch, ahead, ahead))
        own = plgpu.load_rows(row_slot.at[pl.ds(tile * ROWS, ROWS)])
        plgpu.barrier_wait(x_arrived)

        def add_one(i: jax.Array, total: jax.Array) -> jax.Array:
            stage = plgpu.rem(i, STAGES)
            plgpu.barrier_wait(a_arrived.at[stage])
            found = plgpu.product(x_chunk, a_chunks.at[stage])
            plgpu.commit_smem()  # all warps have read this stage
            pl.when(i + STAGES < busy)(functools.partial(fetch, i + STAGES, stage))
            mine = plgpu.across(own, LANES) == tile_slots[tile, i] + 1
            return jnp.where(mine, found, total)

        staged[...] = lax.fori_loop(0, busy, add_one, plgpu.full((ROWS, LANES), 0.0))
        plgpu.commit_smem()
        to = sums.at[split, own_rows, pl.ds(block * LANES, LANES)]
        plgpu.copy_smem_to_gmem(staged.at[pl.ds(0, rows)], to)
        plgpu.wait_smem_to_gmem(0)


def _expand(
    out: Float[Array, "T out"],
    shrunk: Float[Array, "2 T ranks"],
    b: Float[Array, "L S panels rows 32"],
    tiles: Tiles,
    layer: Int[Array, ""],
    halves: Halves,
    rows: int,
    interpret: bool,
) -> Float[Array, "T out"]:
    layers, slots, all_panels = b.shape[:3]
    rank, parts = b.shape[3] - ALIGNMENT, 1 + max(part for _, _, part in halves)
    panels = panels_of(all_panels, rank)
    blocks = jnp.array(halves, jnp.int32).reshape(-1, 2 * panels, 3)
    added: Array = plgpu.kernel(
        functools.partial(_expand_body, layers, slots, all_panels, rows),
        interpret=interpret,
        out_type=jax.ShapeDtypeStruct(out.shape, out.dtype),
        scratch_types={
            "held": plgpu.tiles((parts, 2, ROWS, rank), shrunk.dtype, LANES),
            "b_panels": plgpu.tiles((STAGES, 2, panels, rank, LANES), shrunk.dtype),
            "products": plgpu.SMEM((2 * panels, ROWS, LANES), out.dtype),
            "rows_arrived": plgpu.Barrier(num_arrivals=2 * (parts + panels)),
            "b_arrived": plgpu.Barrier(num_arrivals=2, num_barriers=STAGES),
        },
        grid=(len(out) // rows, len(blocks)),
        grid_names=("tile", "block"),
    )(out, shrunk, b.reshape(-1, *b.shape[3:]), *tiles, layer[None], blocks)
    return added


def _expand_body(
    layers: int,
    slots: int,
    all_panels: int,
    rows: int,
    out: Any,  # [T, out]
    shrunk: Any,  # [2, T, ranks]
    b: Any,  # [L * S * panels, R + 8, 32]
    row_slot: Any,  # [NT * 64]
    count: Any,  # [NT]
    tile_slots: Any,  # [NT, K]
    layer: Any,  # [1]
    of_half: Any,  # [blocks, halves, 3]: its first column of the product, 16, and its part
    result: Any,  # [T, out]
    *,
    held: Any,
    b_panels: Any,
    products: Any,
    rows_arrived: Any,
    b_arrived: Any,
) -> None:
    tile, block = lax.axis_index("tile"), lax.axis_index("block")
    busy, panels, rank = count[tile], b_panels.shape[2], b_panels.shape[3]
    number = jnp.clip(layer[0], 0, layers - 1) * slots
    own_rows, some = pl.ds(pl.multiple_of(tile * rows, ALIGNMENT), rows), pl.ds(0, rows)
    halves = [(panel, half) for panel in range(panels) for half in range(2)]
    columns = [pl.ds(of_half[block, place, 0], LANES) for place in range(len(halves))]

    def panel_of(i: Any) -> Any:
        return (number + tile_slots[tile, i]) * all_panels + block * panels

    def fetch(i: Any, stage: Any) -> None:
        for half in range(2):
            of = b.at[pl.ds(panel_of(i), panels), pl.ds(0, rank), pl.ds(half * LANES, LANES)]
            plgpu.copy_gmem_to_smem(of, b_panels.at[stage, half], b_arrived.at[stage])

    for one in range(held.shape[0]):
        for piece in range(2):
            of = shrunk.at[piece, own_rows, pl.ds(one * rank, rank)]
            plgpu.copy_gmem_to_smem(of, held.at[one, piece, some], rows_arrived)
    for place, of in enumerate(columns):
        plgpu.copy_gmem_to_smem(out.at[own_rows, of], products.at[place, some], rows_arrived)
    for ahead in range(min(STAGES, slots)):
        pl.when(ahead < busy)(functools.partial(fetch, ahead, ahead))
    own = plgpu.load_rows(row_slot.at[pl.ds(tile * ROWS, ROWS)])
    plgpu.barrier_wait(rows_arrived)

    def add_one(i: jax.Array, totals: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        stage = plgpu.rem(i, STAGES)
        bias = [
            plgpu.load_columns(b.at[panel_of(i) + panel, rank, pl.ds(half * LANES, LANES)])
            for panel, half in halves
        ]
        plgpu.barrier_wait(b_arrived.at[stage])
        left = [held.at[of_half[block, place, 2]] for place in range(len(halves))]
        found = _products(left, [b_panels.at[stage, half, panel] for panel, half in halves])
        plgpu.commit_smem()  # all warps have read this stage
        pl.when(i + STAGES < busy)(functools.partial(fetch, i + STAGES, stage))
        mine = plgpu.across(own, LANES) == tile_slots[tile, i] + 1
        return tuple(
            jnp.where(mine, one + plgpu.down(of.astype(jnp.float32), ROWS), total)
            for one, of, total in zip(found, bias, totals, strict=True)
        )

    zeros = tuple(plgpu.full((ROWS, LANES), 0.0) for _ in halves)
    totals = lax.fori_loop(0, busy, add_one, zeros)
    has = plgpu.across(own, LANES) > 0
    for place, total in enumerate(totals):
        old = plgpu.load_tile(products.at[place])
        new = (old.astype(jnp.float32) + total).astype(old.dtype)
        products.at[place][...] = jnp.where(has, new, old)
    plgpu.commit_smem()
    for place, of in enumerate(columns):
        plgpu.copy_smem_to_gmem(products.at[place, some], result.at[own_rows, of])
    plgpu.wait_smem_to_gmem(0)


def _products(left: list[Any], right: list[Any]) -> tuple[jax.Array, ...]:
    """The rows' sums times some halves of panels, first the small parts of the sums."""

    def run(*totals: Any) -> tuple[jax.Array, ...]:
        for total, sums, half in zip(totals, left, right, strict=True):
            for piece in (1, 0):
                plgpu.wgmma(total, sums.at[piece], half)
        return tuple(total[...] for total in totals)

    accumulators = [plgpu.ACC((ROWS, LANES), jnp.float32)] * len(left)
    found: tuple[jax.Array, ...] = pl.run_scoped(run, *accumulators)
    return found
