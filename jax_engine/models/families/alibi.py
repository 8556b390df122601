"""The slopes of ALiBi: what a head's score loses for each position between query and key."""

import math


def press_slopes(num_heads: int) -> tuple[float, ...]:
    """Slopes as ALiBi's paper has them (Press et al., arXiv 2108.12409), for BLOOM and Falcon.

    For a power of two of heads they are a geometric series that ends at 2**-8. Further heads take
    every other slope of the series that is twice as dense.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (num_heads - power), 2)]
    return (*slopes, *between)


def mpt_slopes(num_heads: int, bias_max: float) -> tuple[float, ...]:
    """Slopes as MPT has them: a series down to 2**-bias_max over the next power of two of heads.

    If there are fewer heads, they take the odd places of the series first, then the even ones.
    """
    power = 2 ** math.ceil(math.log2(num_heads))
    slopes = [2 ** (-bias_max * (i + 1) / power) for i in range(power)]
    if power != num_heads:
        slopes = [*slopes[1::2], *slopes[::2]]
    return tuple(slopes[:num_heads])
