"""Time on the device: many iterations inside one program, each of which needs the one before."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax


def seconds_each(
    loop: Callable[[int], Callable[[], Any]], *, few: int, many: int, rounds: int
) -> float:
    """Seconds of one iteration, without what a call costs: (many - few iterations) / the rest.

    Args:
        loop: makes a compiled program of a number of iterations, which a call runs.
        few, many: two numbers of iterations.
        rounds: measurements of each; the median counts.
    """
    short, long = loop(few), loop(many)
    for run in (short, long):  # compile, and bring the clocks up
        jax.block_until_ready(run())
    # In turn, so that a slower clock or a busy machine meets both.
    pairs = [(_elapsed(short), _elapsed(long)) for _ in range(rounds)]
    first, second = (statistics.median(times) for times in zip(*pairs, strict=True))
    # A clock that saw no difference (a smoke run) must not make a rate infinite.
    return max(second - first, 1e-9) / (many - few)


def seconds_a_call(run: Callable[[], Any], rounds: int) -> float:
    """Median seconds from the call of a compiled program until its result is there."""
    jax.block_until_ready(run())
    return statistics.median(_elapsed(run) for _ in range(rounds))


def _elapsed(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - started


def iterations(predicted_s: float, smoke: bool) -> tuple[int, int]:
    """Few and many iterations, the many of which take about 50 ms."""
    if smoke:
        return 1, 2
    many = min(max(int(0.05 / max(predicted_s, 1e-6)), 12), 2000)
    return max(many // 4, 2), many
