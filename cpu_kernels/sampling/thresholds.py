"""The least number that stays of a row, of which so much is to stay: found bit by bit, no sort.

Floats order like their bits (of negative ones flipped). So the largest t for which the weights of
the numbers >= t reach what is wanted takes 32 passes at most, over memory that is near.
"""

from typing import Any

import numpy as np

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.vectors import (
    BYTES,
    add,
    float_of_bits,
    load,
    spread,
    total,
    where_less,
)

# Vectors added up side by side, so that no sum waits for the one before it.
SIDE = 4
_SIGN, _ALL = 0x80000000, 0xFFFFFFFF


@inner
def threshold(numbers: int, weights: int, size: int, wanted: Any) -> Any:
    """The largest t such that the weights of numbers >= t add up to `wanted`, which is above 0.

    What stays is the same with t itself and with any t down to the next number; -inf keeps all.

    Args:
        numbers: address of `size` float32, a multiple of 64.
        weights: of theirs.
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
    """The weights of the numbers >= `least`, added up; 0 if that is NaN."""
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
    """Of a whole number in the order of the floats; NaN of those before -inf or after inf."""
    return float_of_bits(key ^ _SIGN if key & _SIGN else key ^ _ALL)
