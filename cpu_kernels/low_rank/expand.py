"""B (A x), added to the products of rows: 32 columns of up to four rows at a time."""

from typing import Any, NamedTuple

from cpu_kernels.compiling.jit import inner
from cpu_kernels.low_rank.arrays import b_of, ranks_of
from cpu_kernels.low_rank.streams import PANEL, SUMS, Rows, Streams, multiply
from cpu_kernels.simd.structs import int32s
from cpu_kernels.simd.vectors import BYTES, LANES, add, load, load_some, store, store_some
from cpu_kernels.simd.widen import item_bytes, widen

HALF = 12  # bytes of an entry of `halves`


class Half(NamedTuple):
    """16 columns of a product.

    Attributes:
        column, width: the first of them, and how many there are.
        part: the part that they belong to.
        rank, biased: rank of the adapter's module in this part, and whether it has a bias.
    """

    column: int
    width: int
    part: int
    rank: int
    biased: int


@inner
def half_of(call: Any, slot: int, number: int) -> Half:
    """One of the halves of all panels, for the adapter in a slot."""
    half, ranks = int32s(call.halves.address + HALF * number), ranks_of(call, slot)
    part = half[2]
    return Half(half[0], half[1], part, ranks[2 * part], ranks[2 * part + 1])


@inner
def expand_panel(call: Any, slot: int, panel: int, shrunk: Rows, sums: int) -> None:
    """Writes the sums of up to four rows with a panel of B, with its biases.

    Args:
        shrunk: A x of these rows.
        sums: address of SUMS_BYTES.
    """
    kind, ranks = call.b.dtype, call.b.shape[3]
    size = item_bytes(kind) * PANEL
    one, other = half_of(call, slot, 2 * panel), half_of(call, slot, 2 * panel + 1)
    step = 4 * (ranks - 1)
    streams = Streams(step * one.part, step * other.part, 4)
    right, depth = b_of(call, slot) + size * ranks * panel, max(one.rank, other.rank)
    multiply(kind, shrunk, streams, right, depth, sums)
    biases = right + size * (ranks - 1)
    for row in range(shrunk.size):
        place = sums + SUMS * row
        if one.biased != 0:
            store(place, add(load(place), widen(kind, biases)))
        if other.biased != 0:
            place += BYTES
            store(place, add(load(place), widen(kind, biases + item_bytes(kind) * LANES)))


@inner
def add_sums(sums: int, place: int, count: int) -> None:
    """Adds the first `count` of 16 sums to the numbers at a place."""
    if count >= LANES:
        store(place, add(load(place), load(sums)))
    else:
        store_some(place, add(load_some(place, count), load(sums)), count)
