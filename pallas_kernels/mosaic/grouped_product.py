"""Products of rows that lie in groups with each group's weight, in tiles of 64 rows.

A thread block takes a tile of one group's rows and 128 or 64 rows of its weight. It copies steps
of both into a ring in shared memory while the tensor core multiplies those that have arrived.
Groups begin anywhere, tiles at multiples of `ALIGNMENT`. So a tile may also hold rows of other
groups, which are computed and not stored. Weights of groups without rows are not read.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from pallas_kernels.mosaic import plgpu

# Rows of x in a tile, numbers of a row in a step, and steps in shared memory.
ROWS, DEPTH, STAGES = 64, 64, 4
COLUMNS = (128, 64)  # rows of a weight in a tile: the first that divides them
ALIGNMENT = 8  # rows of a swizzled tile of shared memory
DTYPES = ("bfloat16", "float16")


class Tiles(NamedTuple):
    """For each tile: its weight, its row of x, and its group's rows within it, `first` to `end`.

    A tile with nothing to do has no rows.
    """

    weight: Int[Array, " NT"]
    row: Int[Array, " NT"]
    first: Int[Array, " NT"]
    end: Int[Array, " NT"]


def missing(x: Any, weights: Any) -> str | None:
    """Why this backend does not support a call, or None if it does."""
    out, size = weights.shape[1:]
    if x.dtype != weights.dtype or x.dtype.name not in DTYPES:
        return f"x of {x.dtype} with weights of {weights.dtype} (it has {' and '.join(DTYPES)})"
    if out % COLUMNS[-1] or size % DEPTH:
        return f"weights [{out}, {size}] (multiples of {COLUMNS[-1]} and {DEPTH} are needed)"
    return None


def tiles_of(starts: Int[Array, " starts"], rows: int) -> Tiles:
    """The tiles of all groups, then as many without work as make the number of tiles static."""
    groups = starts.shape[0] - 1
    busy = min(groups, rows)
    begin = starts[:-1] // ALIGNMENT * ALIGNMENT
    each = jnp.where(starts[1:] > starts[:-1], -(-(starts[1:] - begin) // ROWS), 0)
    ends = jnp.cumsum(each)
    number = jnp.arange((rows + busy * (ALIGNMENT - 1)) // ROWS + busy, dtype=jnp.int32)
    found = jnp.searchsorted(ends, number, side="right", method="compare_all")
    group = jnp.minimum(found, groups - 1)
    row = begin[group] + ROWS * (number - (ends - each)[group])
    first = jnp.maximum(starts[group] - row, 0)
    end = jnp.where(found < groups, jnp.minimum(starts[group + 1] - row, ROWS), 0)
    return Tiles(*(a.astype(jnp.int32) for a in (group, row, first, end)))


def multiply(
    x: Float[Array, "T in"],
    weights: Float[Array, "X out in"],
    starts: Int[Array, " starts"],
    *,
    interpret: bool,
) -> Float[Array, "T out"]:
    """`grouped_product` on checked arguments."""
    (rows, _), out = x.shape, weights.shape[1]
    columns = next(size for size in COLUMNS if out % size == 0)
    tiles = tiles_of(starts, rows)
    # A tile may begin in the last rows. The copies want whole swizzled tiles: a multiple of 8 rows.
    beyond = ROWS + -rows % ALIGNMENT
    products: Array = plgpu.kernel(
        _body,
        interpret=interpret,
        out_type=jax.ShapeDtypeStruct((rows, out), x.dtype),
        scratch_types={
            "x_steps": plgpu.tiles((STAGES, ROWS, DEPTH), x.dtype),
            "weight_steps": plgpu.tiles((STAGES, columns, DEPTH), x.dtype),
            "staged": plgpu.SMEM((ROWS, columns), x.dtype),
            "arrived": plgpu.Barrier(num_arrivals=2, num_barriers=STAGES),
        },
        grid=(tiles.row.shape[0], out // columns),
        grid_names=("tile", "block"),
    )(jnp.pad(x, ((0, beyond), (0, 0))), weights, *tiles)
    real = jnp.arange(rows, dtype=jnp.int32)[:, None] < starts[-1]
    return jnp.where(real, products, 0)


def _body(
    x: Any,  # [T + beyond, in]
    weights: Any,  # [X, out, in]
    tile_weight: Any,  # [NT]
    tile_row: Any,  # [NT]
    tile_first: Any,  # [NT]
    tile_end: Any,  # [NT]
    out: Any,  # [T, out]
    *,
    x_steps: Any,
    weight_steps: Any,
    staged: Any,
    arrived: Any,
) -> None:
    tile, steps = lax.axis_index("tile"), x.shape[1] // DEPTH
    row = pl.multiple_of(tile_row[tile], ALIGNMENT)
    first, count = tile_first[tile], tile_end[tile] - tile_first[tile]
    columns = pl.ds(lax.axis_index("block") * staged.shape[1], staged.shape[1])
    weight = tile_weight[tile]

    def fetch(step: Any, slot: Any) -> None:
        part = pl.ds(step * DEPTH, DEPTH)
        barrier = arrived.at[slot]
        plgpu.copy_gmem_to_smem(x.at[pl.ds(row, ROWS), part], x_steps.at[slot], barrier)
        plgpu.copy_gmem_to_smem(weights.at[weight, columns, part], weight_steps.at[slot], barrier)

    def accumulate(acc: Any) -> jax.Array:
        def step(number: jax.Array, _: None) -> None:
            slot = plgpu.rem(number, STAGES)
            plgpu.barrier_wait(arrived.at[slot])
            plgpu.wgmma(acc, x_steps.at[slot], weight_steps.at[slot].transpose((1, 0)))
            # The product before this one has read its step.
            plgpu.wgmma_wait(1)
            following, free = number + STAGES - 1, plgpu.rem(number + STAGES - 1, STAGES)
            more = (number > 0) & (following < steps)
            pl.when(more)(functools.partial(fetch, following, free))

        lax.fori_loop(0, steps, step, None)
        total: jax.Array = acc[...]
        return total

    @pl.when(count > 0)
    def _() -> None:
        for number in range(min(STAGES, steps)):
            fetch(number, number)
        total = pl.run_scoped(accumulate, plgpu.ACC(staged.shape, jnp.float32))
        staged[...] = total.astype(staged.dtype)
        plgpu.commit_smem()
        _store(staged, out.at[:, columns], row, first, count)
        plgpu.wait_smem_to_gmem(0)


def _store(staged: Any, out: Any, row: jax.Array, first: jax.Array, count: jax.Array) -> None:
    """Writes `count` rows: pieces of 64, 32, 16 ... rows, as the bits of `count` say."""
    size = ROWS
    while size:
        piece, to = staged.at[pl.ds(first, size)], out.at[pl.ds(row + first, size)]
        pl.when(count & size != 0)(functools.partial(plgpu.copy_smem_to_gmem, piece, to))
        first, size = first + (count & size), size // 2
