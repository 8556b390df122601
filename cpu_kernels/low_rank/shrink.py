"""A x: a few numbers for each row that has an adapter, in float32."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int

from cpu_kernels.calls.kernel import cpu_kernel
from cpu_kernels.compiling.jit import inner
from cpu_kernels.low_rank.arrays import (
    Tile,
    a_of,
    blocks_of_part,
    num_tiles,
    ranks_held,
    ranks_of,
    row_of,
    rows_at,
    side_by_side,
    tile_of,
)
from cpu_kernels.low_rank.streams import PANEL, ROWS, SUMS, SUMS_BYTES, Rows, Streams, multiply
from cpu_kernels.simd.vectors import BYTES, LANES, add, load, spread, store
from cpu_kernels.simd.widen import item_bytes, widen_some

NAME = "cpu_kernels.low_rank_shrink"
PAIR = Streams(0, 4, 8)  # the even and the odd numbers of a row


def shrink(
    x: Float[Array, "T in"],
    a: Float[Array, "L slots blocks pairs 32"],
    ranks: Int[Array, "L slots parts 2"],
    layer: Int[Array, ""],
    order: Int[Array, " T"],
    starts: Int[Array, " starts"],
) -> Float32[Array, "T ranks"]:
    """A x of the rows that have an adapter; the other rows of the result are not written.

    Args:
        x: float32 or bfloat16, or float16, which is widened.
        a, ranks, order, starts: see the package's docstring.
        layer: index of the layer; clipped to its ends.
    """
    result = jax.ShapeDtypeStruct((x.shape[0], LANES * a.shape[2]), jnp.float32)
    out: Array = jax.ffi.ffi_call(NAME, result)(in_kernel(x), a, ranks, layer, order, starts)
    return out


def in_kernel(x: Float[Array, "T in"]) -> Float[Array, "T in"]:
    """x in a dtype that the kernels read."""
    return x.astype(jnp.float32) if x.dtype == jnp.float16 else x


@inner
def _width(call: Any) -> int:
    """Numbers of a widened row: its own, and zeros up to whole vectors."""
    return (call.x.shape[1] + LANES) // LANES * LANES


@inner
def shrink_bytes(call: Any) -> int:
    """Bytes for a tile's rows in float32, and for their sums with a panel."""
    return 4 * ROWS * _width(call) + SUMS_BYTES


@inner
def _widen(call: Any, tile: Tile, memory: int) -> None:
    """Writes a tile's rows to the thread's own memory, in float32."""
    kind, size, step = call.x.dtype, call.x.shape[1], 4 * _width(call)
    item = item_bytes(kind)
    for number in range(tile.rows):
        start = call.x.address + item * size * row_of(call, tile.first, tile.rows, number)
        for at in range(0, _width(call), LANES):
            place = memory + step * number + 4 * at
            store(place, widen_some(kind, start + item * at, max(size - at, 0)))


@inner
def _store_ranks(sums: int, place: int) -> None:
    """What the two streams of a row have added up to."""
    store(place, add(load(sums), load(sums + BYTES)))


@inner
def shrink_tile(call: Any, tile: Tile, out: Rows, memory: int) -> None:
    """Writes A x of a tile's rows to `out`.

    Args:
        memory: address of `shrink_bytes`.
    """
    step, kind, blocks = 4 * _width(call), call.a.dtype, blocks_of_part(call)
    panel = item_bytes(kind) * PANEL * call.a.shape[3]
    _widen(call, tile, memory)
    rows, sums = side_by_side(memory, step, tile.rows), memory + ROWS * step
    ranks, a = ranks_of(call, tile.slot), a_of(call, tile.slot)
    for part in range(call.ranks.shape[2]):
        for block in range(blocks):
            number = part * blocks + block
            at = BYTES * number
            if LANES * block < ranks[2 * part]:
                multiply(kind, rows, PAIR, a + panel * number, call.a.shape[3], sums)
                _store_ranks(sums, out.first + at)
                if tile.rows > 1:
                    _store_ranks(sums + SUMS, out.second + at)
                if tile.rows > 2:
                    _store_ranks(sums + 2 * SUMS, out.third + at)
                if tile.rows > 3:
                    _store_ranks(sums + 3 * SUMS, out.fourth + at)
            else:
                store(out.first + at, spread(0.0))
                store(out.second + at, spread(0.0))
                store(out.third + at, spread(0.0))
                store(out.fourth + at, spread(0.0))


@cpu_kernel(
    NAME,
    operands="x a ranks layer order starts",
    results="shrunk",
    items=num_tiles,
    scratch=shrink_bytes,
    neighbours=True,
)
@inner
def _tile(call: Any, item: int, memory: int) -> None:
    tile = tile_of(call, item)
    out = rows_at(call, tile.first, tile.rows, call.shrunk.address, 4 * ranks_held(call))
    shrink_tile(call, tile, out, memory)
