"""Time on the device: many iterations inside one program, each of which needs the one before."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax

CALLS = 5  # of the longer of two measurements


def seconds_each(run: Callable[[], Any], count: int, rounds: int) -> float:
    """Seconds of one iteration: the time of `CALLS` calls less that of one, over the iterations.

    So the cost of a call and of the wait counts in neither. One program does, since compiling takes
    longer than measuring. Calls queue up on the device, which the host must be quick enough for.

    Args:
        run: A call of a compiled program of `count` iterations.
        rounds: Measurements of each; the median counts.
    """
    jax.block_until_ready(run())  # compile, and bring the clocks up
    # In turn, so that a slower clock or a busy machine meets both.
    pairs = [(_elapsed(run, 1), _elapsed(run, CALLS)) for _ in range(rounds)]
    first, second = (statistics.median(times) for times in zip(*pairs, strict=True))
    # A clock that saw no difference (a smoke run) must not make a rate infinite.
    return max(second - first, 1e-9) / ((CALLS - 1) * count)


def _elapsed(run: Callable[[], Any], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        result = run()
    jax.block_until_ready(result)
    return time.perf_counter() - started


def iterations(predicted_s: float, smoke: bool) -> int:
    """How often one program runs, so that all calls take about 50 ms; at most 500."""
    if smoke:
        return 1
    return min(max(int(0.05 / CALLS / max(predicted_s, 1e-6)), 3), 500)
