"""One row of scores into weights, with what came before it (online softmax)."""

from typing import Any

from cpu_kernels.compiling.jit import inner
from cpu_kernels.simd.functions import exp, tanh
from cpu_kernels.simd.vectors import (
    BYTES,
    LANES,
    add,
    count_from,
    larger,
    largest,
    load,
    madd,
    mul,
    spread,
    store,
    sub,
    total,
    where_less,
)

# Stands for minus infinity: finite, so that the difference of two of them is not NaN.
MASKED = -1e30


@inner
def highest(
    scores: int, width: int, low: int, high: int, away: int, slope: Any, cap: Any, top: Any
) -> Any:
    """The largest score so far. Those that are not visible are made MASKED, in place.

    Args:
        scores: address of `width` of them, a multiple of 16.
        low: first visible one.
        high: the one after the last visible one.
        away: position of the first key minus that of the query.
        slope: of ALiBi, or 0.
        cap: bound of the scores' magnitude, or 0.
        top: largest score before.
    """
    if low > 0 or high < width or slope != 0 or cap != 0:
        _adjust(scores, width, low, high, away, slope, cap)
    peak = spread(top)
    for place in range(scores, scores + 4 * width, BYTES):
        peak = larger(load(place), peak)
    return largest(peak)


@inner
def weigh(scores: int, width: int, top: Any) -> Any:
    """Scores to exp(score - top), in place, 0 for those that are MASKED; returns their sum.

    No NaN is the top; a NaN stays one. A row at a time after the tops of all rows are known: a
    row's top takes as long as its weights, and while one row waits for its own the processor would
    look ahead no farther than the next.
    """
    shift, masked, zero, sums = spread(top), spread(MASKED), spread(0.0), spread(0.0)
    for place in range(scores, scores + 4 * width, BYTES):
        score = load(place)
        weight = where_less(score, masked, zero, exp(sub(score, shift)))
        sums = add(sums, weight)
        store(place, weight)
    return total(sums)


@inner
def _adjust(scores: int, width: int, low: int, high: int, away: int, slope: Any, cap: Any) -> None:
    """Cap and bias, and MASKED where nothing is to be seen, whatever stands there."""
    below, above, masked = spread(low - 1), spread(high), spread(MASKED)
    for start in range(0, width, LANES):
        place = scores + 4 * start
        score, index = load(place), count_from(start)
        if cap != 0:
            score = mul(spread(cap), tanh(mul(score, spread(1 / cap))))
        if slope != 0:
            score = madd(spread(slope), add(index, spread(away)), score)
        score = where_less(index, below, masked, score)
        store(place, where_less(above, index, masked, score))


@inner
def scale_row(row: int, width: int, factor: Any) -> None:
    """The `width` numbers at an address times a vector of equal factors."""
    for place in range(row, row + 4 * width, BYTES):
        store(place, mul(load(place), factor))


@inner
def shrink(old_top: Any, new_top: Any) -> Any:
    """What sums relative to the old largest score are to be multiplied by, in all lanes."""
    return exp(sub(spread(old_top), spread(new_top)))
