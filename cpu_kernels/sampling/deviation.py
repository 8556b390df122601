"""The standard deviation of a row of logits, for top-n-sigma."""

from typing import Any

import numpy as np

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.vectors import BYTES, add, load, mul, spread, sub, total, where_less

# The smallest finite number. Only -inf is smaller, the logit of a token that may not be drawn.
LEAST = float(np.finfo(np.float32).min)


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
