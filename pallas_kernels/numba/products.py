"""Register-blocked products: 4 rows at a time, so that what is read is used four times."""

from pallas_kernels.numba.jit import inner, processor_has
from pallas_kernels.numba.vectors import (
    BYTES,
    LANES,
    load,
    madd,
    prefetch,
    put_totals,
    spread,
    spread_from,
    store,
)

ROWS = 4
# Whether 8 sums of 16 numbers leave registers for the rest: with AVX-512, which has 32 of them.
MANY_REGISTERS = processor_has("avx512f")


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
def add_two_products(
    left: int,
    left_step: int,
    right: int,
    right_step: int,
    apart: int,
    depth: int,
    out: int,
    out_step: int,
    ahead: int,
) -> None:
    """The same for 32 columns: the last 16 of `right` lie `apart` bytes after the first.

    Eight sums keep the multipliers busy, where four would wait for one another.
    """
    second, third, fourth = left_step, 2 * left_step, 3 * left_step
    out_1, out_2, out_3 = out + out_step, out + 2 * out_step, out + 3 * out_step
    a_0, a_1, a_2, a_3 = load(out), load(out_1), load(out_2), load(out_3)
    b_0, b_1, b_2, b_3 = (
        load(out + BYTES),
        load(out_1 + BYTES),
        load(out_2 + BYTES),
        load(out_3 + BYTES),
    )
    for _ in range(depth):
        a, b = load(right), load(right + apart)
        prefetch(right + ahead)
        prefetch(right + apart + ahead)
        factor = spread_from(left)
        a_0, b_0 = madd(factor, a, a_0), madd(factor, b, b_0)
        factor = spread_from(left + second)
        a_1, b_1 = madd(factor, a, a_1), madd(factor, b, b_1)
        factor = spread_from(left + third)
        a_2, b_2 = madd(factor, a, a_2), madd(factor, b, b_2)
        factor = spread_from(left + fourth)
        a_3, b_3 = madd(factor, a, a_3), madd(factor, b, b_3)
        left += 4
        right += right_step
    for place, a, b in ((out, a_0, b_0), (out_1, a_1, b_1), (out_2, a_2, b_2), (out_3, a_3, b_3)):
        store(place, a)
        store(place + BYTES, b)


@inner
def add_products(
    left: int,
    left_step: int,
    right: int,
    right_step: int,
    apart: int,
    depth: int,
    out: int,
    out_step: int,
    columns: int,
    ahead: int,
) -> None:
    """out [4, columns] += left [4, depth] @ right [depth, columns], a multiple of 16.

    Args:
        apart: bytes from 16 columns of `right` to the next; those of `out` lie side by side.
    """
    done = 0
    while MANY_REGISTERS and done + 2 <= columns // LANES:
        at, to = right + done * apart, out + done * BYTES
        add_two_products(left, left_step, at, right_step, apart, depth, to, out_step, ahead)
        done += 2
    for column in range(done, columns // LANES):
        at, to = right + column * apart, out + column * BYTES
        add_product(left, left_step, at, right_step, depth, to, out_step, ahead)


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
