"""When requests are sent: all at once, or at random times with a given rate."""

from math import isinf

import numpy as np


def arrival_times(
    count: int, rate: float, burstiness: float, rng: np.random.Generator
) -> list[float]:
    """Seconds from the start for each request, in order; the last one is at `count / rate`.

    So runs of one rate take the same time, whatever is drawn.

    Args:
        rate: requests a second; infinite: all at 0.
        burstiness: shape of the gamma distribution of the times between two requests. 1: a Poisson
            process; less: more bursts; infinite: all times are equal.
    """
    if isinf(rate):
        return [0.0] * count
    gaps = np.ones(count) if isinf(burstiness) else rng.gamma(burstiness, size=count)
    times = np.cumsum(gaps)
    return (times * (count / rate / times[-1])).tolist()  # type: ignore[no-any-return]
