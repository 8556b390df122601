"""What the filters' thresholds are made of, found without sorting.

For top-k and top-p it is the smallest number of a row to keep, for top-n-sigma the deviation.

Floats have the order of their bits, if the bits of negative numbers are flipped. A bitwise search
finds the largest t such that the numbers >= t have the wanted total weight, in at most 32 passes
over memory that stays in cache.
"""

from typing import Any

import numpy as np

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.vectors import (
    BYTES,
    add,
    float_of_bits,
    load,
    mul,
    spread,
    sub,
    total,
    where_less,
)

# Number of independent sums, so that no addition waits for the one before it.
SIDE = 4
_SIGN, _ALL = 0x80000000, 0xFFFFFFFF
# The smallest finite number. Only -inf is smaller, the logit of a token that may not be drawn.
LEAST = float(np.finfo(np.float32).min)


@inner
def threshold(numbers: int, weights: int, size: int, wanted: Any) -> Any:
    """The largest t such that the weights of numbers >= t reach `wanted`; -inf keeps all numbers.

    The search may stop at a smaller t that keeps the same numbers.

    Args:
        numbers: address of `size` float32.
        weights: address of their weights.
        size: a multiple of 64.
        wanted: total weight to reach, above 0.
    """
    key = 0
    for i in range(32):
        higher = key | (1 << (31 - i))
        mass = weight_above(numbers, weights, size, _float_of_key(higher))
        if mass >= wanted:
            key = higher
        if mass == wanted:
            break
    least = _float_of_key(key)
    return np.float32(-np.inf) if np.isnan(least) else least


@inner
def weight_above(numbers: int, weights: int, size: int, least: Any) -> Any:
    """The total weight of the numbers >= `least`; 0 if `least` is NaN."""
    low, zero = spread(least), spread(0.0)
    a, b, c, d = zero, zero, zero, zero
    for at in range(0, 4 * size, SIDE * BYTES):
        x, w = numbers + at, weights + at
        a = add(a, where_less(low, load(x), load(w), zero))
        b = add(b, where_less(low, load(x + BYTES), load(w + BYTES), zero))
        c = add(c, where_less(low, load(x + 2 * BYTES), load(w + 2 * BYTES), zero))
        d = add(d, where_less(low, load(x + 3 * BYTES), load(w + 3 * BYTES), zero))
    return total(add(add(a, b), add(c, d)))


@inner
def _float_of_key(key: int) -> Any:
    """The float with this rank in the order of all floats; NaN for ranks outside [-inf, inf]."""
    return float_of_bits(key ^ _SIGN if key & _SIGN else key ^ _ALL)


@inner
def deviation(numbers: int, size: int) -> Any:
    """The standard deviation of a row's numbers that are not -inf or NaN; 0 if there are none.

    It takes two passes, since the mean of squares minus the square of the mean loses digits if the
    mean is large.

    Args:
        numbers: address of `size` float32; `size` is a multiple of the lanes of a vector.
    """
    least, one, zero = spread(LEAST), spread(1.0), spread(0.0)
    counts, sums = zero, zero
    for at in range(0, 4 * size, BYTES):
        number = load(numbers + at)
        counts = add(counts, where_less(least, number, one, zero))
        sums = add(sums, where_less(least, number, number, zero))
    count = total(counts)
    if count == 0:
        return np.float32(0)
    mean, squares = spread(total(sums) / count), zero
    for at in range(0, 4 * size, BYTES):
        number = load(numbers + at)
        apart = sub(number, mean)
        squares = add(squares, where_less(least, number, mul(apart, apart), zero))
    return np.float32(np.sqrt(total(squares) / count))
