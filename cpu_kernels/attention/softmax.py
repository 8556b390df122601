"""Online softmax: turns one row of scores into weights, given the largest score so far."""

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
    total_in_order,
    where_less,
)

# Stands for minus infinity, but is finite, so that the difference of two is not NaN.
MASKED = -1e30


@inner
def highest(
    scores: int, width: int, low: int, high: int, away: int, slope: Any, soft_cap: Any, top: Any
) -> Any:
    """Returns the largest score so far, and sets invisible scores to MASKED in place.

    Args:
        scores: address of `width` of them, a multiple of 16.
        low: first visible score.
        high: end of the visible scores.
        away: position of the first key minus that of the query.
        slope: ALiBi's, or 0.
        soft_cap: bound on the scores' magnitude, or 0.
        top: largest score of earlier chunks.
    """
    if low > 0 or high < width or slope != 0 or soft_cap != 0:
        _adjust(scores, width, low, high, away, slope, soft_cap)
    peak = spread(top)
    for place in range(scores, scores + 4 * width, BYTES):
        peak = larger(load(place), peak)
    return largest(peak)


@inner
def weigh(scores: int, width: int, top: Any) -> Any:
    """Replaces scores by exp(score - top), MASKED ones by 0, and returns their sum.

    The top is never NaN; a NaN score stays NaN. Call it once the tops of all rows are known:
    waiting for one row's top before its weights would stall the processor in every row.
    """
    shift, masked, zero, sums = spread(top), spread(MASKED), spread(0.0), spread(0.0)
    for place in range(scores, scores + 4 * width, BYTES):
        score = load(place)
        weight = where_less(score, masked, zero, exp(sub(score, shift)))
        sums = add(sums, weight)
        store(place, weight)
    return total_in_order(sums)


@inner
def _adjust(
    scores: int, width: int, low: int, high: int, away: int, slope: Any, soft_cap: Any
) -> None:
    """Applies soft cap and bias, and sets invisible scores to MASKED whatever they hold."""
    below, above, masked = spread(low - 1), spread(high), spread(MASKED)
    for start in range(0, width, LANES):
        place = scores + 4 * start
        score, index = load(place), count_from(start)
        if soft_cap != 0:
            score = mul(spread(soft_cap), tanh(mul(score, spread(1 / soft_cap))))
        if slope != 0:
            score = madd(spread(slope), add(index, spread(away)), score)
        score = where_less(index, below, masked, score)
        store(place, where_less(above, index, masked, score))


@inner
def scale_row(row: int, width: int, factor: Any) -> None:
    """Multiplies the `width` numbers at an address by a factor."""
    for place in range(row, row + 4 * width, BYTES):
        store(place, mul(load(place), factor))


@inner
def shrink(old_top: Any, new_top: Any) -> Any:
    """The factor, in all lanes, that rescales sums from the old largest score to the new one."""
    return exp(sub(spread(old_top), spread(new_top)))
