"""The time in which a process runs, and whether it does anything then.

While a process is stopped, as by Ctrl-Z, the clock goes on.
"""

import resource
import time

LEAST_WORK = 0.01  # cores; a process that waits uses less, and the beats of another thread too


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


class Work:
    """Whether the other threads of this process do anything: compute, or read from a disk.

    One that waits in a collective for a device that never comes does neither.
    """

    def __init__(self) -> None:
        self._before = _done()

    def goes_on(self, seconds: float) -> bool:
        """Whether they did something since the last call, which was so many seconds ago."""
        computed, read = _done()
        before, self._before = self._before, (computed, read)
        return computed - before[0] > LEAST_WORK * seconds or read > before[1]


def _done() -> tuple[float, int]:
    """Processor seconds of all threads but this one, and pages read from a disk."""
    pages = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    return time.process_time() - time.thread_time(), pages
