"""Register-blocked products: 4 rows at a time, so that what is read is used four times."""

from pallas_kernels.numba.jit import inner
from pallas_kernels.numba.vectors import (
    BYTES,
    load,
    madd,
    prefetch,
    put_totals,
    spread,
    spread_from,
    store,
)

ROWS = 4


@inner
def add_product(
    left: int,
    left_step: int,
    right: int,
    right_step: int,
    depth: int,
    out: int,
    out_step: int,
    ahead: int,
) -> None:
    """out [4, 16] += left [4, depth] @ right [depth, 16].

    Args:
        left: Address of a matrix; its rows lie `left_step` bytes apart. The others likewise.
        ahead: distance in bytes from `right` to what to prefetch.
    """
    second, third, fourth = left_step, 2 * left_step, 3 * left_step
    sum_0, sum_1 = load(out), load(out + out_step)
    sum_2, sum_3 = load(out + 2 * out_step), load(out + 3 * out_step)
    for _ in range(depth):
        row = load(right)
        prefetch(right + ahead)
        sum_0 = madd(spread_from(left), row, sum_0)
        sum_1 = madd(spread_from(left + second), row, sum_1)
        sum_2 = madd(spread_from(left + third), row, sum_2)
        sum_3 = madd(spread_from(left + fourth), row, sum_3)
        left += 4
        right += right_step
    store(out, sum_0)
    store(out + out_step, sum_1)
    store(out + 2 * out_step, sum_2)
    store(out + 3 * out_step, sum_3)


@inner
def dots(left: int, step: int, right: int, out: int, out_step: int, ahead: int) -> None:
    """out [4, 1] = left [4, n] @ right [n], where `step` = 4 n, and n is a multiple of 16."""
    sum_0 = sum_1 = sum_2 = sum_3 = spread(0)
    for offset in range(0, step, BYTES):
        row = load(right + offset)
        prefetch(right + offset + ahead)
        here = left + offset
        sum_0 = madd(load(here), row, sum_0)
        sum_1 = madd(load(here + step), row, sum_1)
        sum_2 = madd(load(here + 2 * step), row, sum_2)
        sum_3 = madd(load(here + 3 * step), row, sum_3)
    put_totals(out, out_step, sum_0, sum_1, sum_2, sum_3)
