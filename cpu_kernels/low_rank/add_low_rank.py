"""out + B (A x) in one call: a work item is up to four rows of one adapter, with all of A and B.

So nothing waits between A and B, and a call without rows that have an adapter costs nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.low_rank.arrays import (
    num_tiles,
    ranks_held,
    row_of,
    side_by_side,
    tile_of,
)
from cpu_kernels.low_rank.expand import add_sums, expand_panel, half_of
from cpu_kernels.low_rank.shrink import in_kernel, shrink_bytes, shrink_tile
from cpu_kernels.low_rank.streams import ROWS, SUMS, SUMS_BYTES
from cpu_kernels.simd.vectors import BYTES

NAME = "cpu_kernels.low_rank"


def add_low_rank(
    out: Float32[Array, "T out"],
    x: Float[Array, "T in"],
    a: Float[Array, "L slots blocks pairs 32"],
    b: Float[Array, "L slots panels ranks 32"],
    ranks: Int[Array, "L slots parts 2"],
    halves: Int[Array, "halves 3"],
    layer: Int[Array, ""],
    order: Int[Array, " T"],
    starts: Int[Array, " starts"],
) -> Float32[Array, "T out"]:
    """out + B (A x) in float32. Rows without an adapter keep their bits.

    Args:
        out: the products with the model's own weight; the result takes its memory.
        x: float32 or bfloat16, or float16, which is widened.
        layer: index of the layer; clipped to its ends.
    """
    result = jax.ShapeDtypeStruct(out.shape, jnp.float32)
    call = jax.ffi.ffi_call(NAME, result, input_output_aliases={0: 0})
    added: Array = call(out, in_kernel(x), a, b, ranks, halves, layer, order, starts)
    return added


@inner
def _bytes(call: Any) -> int:
    """Bytes for a tile's A x, for its sums with a panel of B, and what `shrink_tile` takes."""
    return 4 * ROWS * ranks_held(call) + SUMS_BYTES + shrink_bytes(call)


@cpu_kernel(
    NAME,
    operands="base x a b ranks halves layer order starts",
    results="out",
    items=num_tiles,
    scratch=_bytes,
    neighbours=True,
)
@inner
def _tile(call: Any, item: int, memory: int) -> None:
    tile, width = tile_of(call, item), call.out.shape[1]
    step = 4 * ranks_held(call)
    shrunk, sums = side_by_side(memory, step, tile.rows), memory + ROWS * step
    shrink_tile(call, tile, shrunk, sums + SUMS_BYTES)
    for panel in range(call.b.shape[2]):
        one, other = half_of(call, tile.slot, 2 * panel), half_of(call, tile.slot, 2 * panel + 1)
        if one.rank > 0 or other.rank > 0:
            expand_panel(call, tile.slot, panel, shrunk, sums)
            for number in range(tile.rows):
                row = row_of(call, tile.first, tile.rows, number)
                place, found = call.out.address + 4 * width * row, sums + SUMS * number
                if one.rank > 0:
                    add_sums(found, place + 4 * one.column, one.width)
                if other.rank > 0:
                    add_sums(found + BYTES, place + 4 * other.column, other.width)
