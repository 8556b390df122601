"""Up to four rows with a panel of 32 columns, in two streams of 16.

Each sum waits for the one before it, so a row alone needs two streams to keep a processor busy. In
a product with A they are the even and the odd columns, whose sums are added at the end; in one with
B they are two times 16 rows of B.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.structs import BFLOAT16
from cpu_kernels.simd.vectors import BYTES, LANES, get, load, madd, spread, store
from cpu_kernels.simd.widen import load_bfloat16

ROWS = 4
PANEL = 2 * LANES
SUMS = 4 * PANEL  # bytes of a row's sums
SUMS_BYTES = ROWS * SUMS


class Rows(NamedTuple):
    """Addresses of up to four rows of float32; missing ones repeat the last."""

    first: int
    second: int
    third: int
    fourth: int
    size: int


class Streams(NamedTuple):
    """Where the streams begin in each row, and how far they step, in bytes."""

    one: int
    other: int
    step: int


def _tiles_of(wide: Callable[[int], Any], item: int) -> tuple[Any, Any]:
    """Makes the tiles of one row and of four rows. Both add in the same order."""
    half, whole = item * LANES, item * PANEL

    @inner
    def single(rows: Rows, streams: Streams, right: int, depth: int, sums: int) -> None:
        one, other, step = rows.first + streams.one, rows.first + streams.other, streams.step
        left, behind = spread(0.0), spread(0.0)
        for number in range(depth):
            place = right + whole * number
            left = madd(spread(get(one + step * number)), wide(place), left)
            behind = madd(spread(get(other + step * number)), wide(place + half), behind)
        store(sums, left)
        store(sums + BYTES, behind)

    @inner
    def four(rows: Rows, streams: Streams, right: int, depth: int, sums: int) -> None:
        one, other, step = streams.one, streams.other, streams.step
        a, b, c, d = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        e, f, g, h = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        for number in range(depth):
            place = right + whole * number
            left, behind = wide(place), wide(place + half)
            at, to = one + step * number, other + step * number
            a = madd(spread(get(rows.first + at)), left, a)
            e = madd(spread(get(rows.first + to)), behind, e)
            b = madd(spread(get(rows.second + at)), left, b)
            f = madd(spread(get(rows.second + to)), behind, f)
            c = madd(spread(get(rows.third + at)), left, c)
            g = madd(spread(get(rows.third + to)), behind, g)
            d = madd(spread(get(rows.fourth + at)), left, d)
            h = madd(spread(get(rows.fourth + to)), behind, h)
        store(sums, a)
        store(sums + BYTES, e)
        store(sums + SUMS, b)
        store(sums + SUMS + BYTES, f)
        store(sums + 2 * SUMS, c)
        store(sums + 2 * SUMS + BYTES, g)
        store(sums + 3 * SUMS, d)
        store(sums + 3 * SUMS + BYTES, h)

    return single, four


_single_float32, _four_float32 = _tiles_of(load, 4)
_single_bfloat16, _four_bfloat16 = _tiles_of(load_bfloat16, 2)


@inner
def multiply(kind: int, rows: Rows, streams: Streams, right: int, depth: int, sums: int) -> None:
    """sums [rows, 32] = each row's two streams of `depth` numbers with a panel [depth, 32].

    Args:
        kind: XLA's number of the panel's dtype, float32 or bfloat16.
        right: address of the panel.
        sums: address of SUMS_BYTES.
    """
    if kind == BFLOAT16:
        if rows.size == 1:
            _single_bfloat16(rows, streams, right, depth, sums)
        else:
            _four_bfloat16(rows, streams, right, depth, sums)
    elif rows.size == 1:
        _single_float32(rows, streams, right, depth, sums)
    else:
        _four_float32(rows, streams, right, depth, sums)
