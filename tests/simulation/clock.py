"""Time in a simulation: it passes only where somebody says so."""

TICK = 2.0**-10  # seconds; all times are multiples, so that sums are exact


class SimulatedClock:
    """What an engine gets in place of `time.monotonic` and `time.perf_counter`.

    Attributes:
        now: Seconds since the simulation began.
        stands_still: Whether `advance` does nothing, as with a clock of coarse resolution.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.stands_still = False

    def __call__(self) -> float:
        return self.now

    def advance(self, ticks: int) -> None:
        if not self.stands_still:
            self.now += ticks * TICK
