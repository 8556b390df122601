"""How products with adapters are cut into tiles, and the lists that kernels look up."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

# Rows of a tile; ranks of a block, columns of half a panel and of a swizzled tile; the most columns
# of x that are multiplied at once.
ROWS, LANES, CHUNK = 64, 16, 512
PANELS = (4, 2, 1)  # of B in a thread block: the first that divides them, and fits
STAGES = 4  # adapters in shared memory
# Ranks of a part, and of all parts together, whose numbers fit into shared memory.
MOST_RANKS, MOST_RANKS_OF_PARTS = 256, 512
ALIGNMENT = 8  # rows of a swizzled tile of shared memory
DTYPE, OUT_DTYPES = "bfloat16", ("bfloat16", "float32")

Halves = tuple[tuple[int, int, int], ...]


class Tiles(NamedTuple):
    """The adapters of each tile of rows.

    Attributes:
        slot: each row's slot, up to whole tiles of ROWS; 0: it has no adapter.
        busy: how many adapters a tile's rows have.
        slots: these adapters' slots, counted from 0, in front; K is as many as can be in one tile.
    """

    slot: Int[Array, " rows"]
    busy: Int[Array, " NT"]
    slots: Int[Array, "NT K"]


def rows_of(rows: int) -> int:
    """Rows that a tile really has: of few rows as many as there are, in whole swizzled tiles."""
    return min(ROWS, -(-rows // ALIGNMENT) * ALIGNMENT)


def chunk_of(size: int) -> int:
    """Columns of x that are multiplied at once. It may not depend on the number of rows."""
    return max(part for part in range(LANES, CHUNK + 1, LANES) if size % part == 0)


def panels_of(panels: int, rank: int) -> int:
    """Panels of B in a thread block."""
    return next(
        some for some in PANELS if panels % some == 0 and (some * rank <= MOST_RANKS or some == 1)
    )


def tiles_of(slot: Int[Array, " T"], slots: int) -> Tiles:
    """The adapters of each tile, the same in all layers of a step.

    Args:
        slot: each row's slot, from 1 to `slots`; 0 for none.
    """
    tiles = -(-len(slot) // rows_of(len(slot)))
    whole = jnp.pad(slot, (0, tiles * ROWS - len(slot)))
    number = jnp.arange(slots, dtype=jnp.int32)
    places = number[: rows_of(len(slot))]
    present = (whole.reshape(tiles, ROWS)[:, :, None] == number + 1).any(axis=1)
    place = jnp.where(present, jnp.cumsum(present, axis=1, dtype=jnp.int32) - 1, slots)
    # [NT, slot, place]: each slot goes to its place.
    held = jnp.where(place[:, :, None] == places, number[:, None], 0).sum(axis=1, dtype=jnp.int32)
    return Tiles(whole, present.sum(axis=1, dtype=jnp.int32), held)


def missing(out: Any, x: Any, a: Any, b: Any, halves: Halves) -> str | None:
    """Why the kernels do not support a call, or None if they do."""
    if {one.dtype.name for one in (x, a, b)} != {DTYPE}:
        return f"x of {x.dtype} with adapters of {a.dtype} (it has {DTYPE})"
    if out.dtype.name not in OUT_DTYPES:
        return f"products of {out.dtype} (it has {' and '.join(OUT_DTYPES)})"
    if x.shape[1] % LANES:
        return f"x of {x.shape[1]} columns (a multiple of {LANES} is needed)"
    if b.shape[3] % ALIGNMENT:
        return f"B in {b.shape[3]} rows (a multiple of {ALIGNMENT} is needed)"
    rank, parts = b.shape[3] - ALIGNMENT, 1 + max(part for _, _, part in halves)
    if rank > MOST_RANKS or rank * parts > MOST_RANKS_OF_PARTS:
        return f"{parts} modules with slots of rank {rank} (it has {MOST_RANKS_OF_PARTS} in all)"
    if any(count != LANES for _, count, _ in halves):
        return f"modules whose outputs are no multiples of {LANES}"
    return None
