"""The most probable token of a row of logits."""

from typing import Any

import numpy as np

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.vectors import (
    BYTES,
    LANES,
    count_from,
    get,
    larger,
    largest,
    load,
    load_some,
    spread,
    where_less,
)

STRETCH = 1024  # the first pass finds the stretch with the largest number, the second its position


@inner
def first_of_largest(numbers: int, size: int) -> int:
    """Index of the first largest of `size` float32; 0 if all are -inf or NaN."""
    best, first = np.float32(-np.inf), 0
    for at in range(0, size, STRETCH):
        peak = _peak(numbers + 4 * at, min(size - at, STRETCH))
        if peak > best:
            best, first = peak, at
    for i in range(first, min(first + STRETCH, size)):
        if get(numbers + 4 * i) == best:
            return i
    return 0


@inner
def _peak(numbers: int, size: int) -> Any:
    nothing = spread(-np.inf)
    a, b = nothing, nothing
    for at in range(0, size - 2 * LANES + 1, 2 * LANES):
        a = larger(load(numbers + 4 * at), a)
        b = larger(load(numbers + 4 * at + BYTES), b)
    for at in range(size // (2 * LANES) * 2 * LANES, size, LANES):
        number = load_some(numbers + 4 * at, size - at)
        a = larger(where_less(count_from(at), spread(size - 1), number, nothing), a)
    return largest(larger(a, b))
