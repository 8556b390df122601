"""The time in which a process runs. While it is stopped, as by Ctrl-Z, the clock goes on."""

import time


class Awake:
    """Counts seconds at each tick: of what lies between two ticks, at most `at_most`.

    Args:
        at_most: seconds; what is above them, the process was stopped, or too busy to tick.
    """

    def __init__(self, at_most: float) -> None:
        self.seconds = 0.0
        self._at_most = at_most
        self._last = time.monotonic()

    def tick(self) -> None:
        """Called again and again, by one thread or task."""
        now = time.monotonic()
        self.seconds += min(now - self._last, self._at_most)
        self._last = now
