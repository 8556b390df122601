"""What happened in a simulation: lines, their hash, and how often each thing happened."""

from collections import Counter
from hashlib import sha256

from tests.simulation.clock import SimulatedClock


class EventLog:
    """
    Attributes:
        lines: All events, each with its time.
        seen: How often each thing happened that a run must have met ("sometimes").
    """

    def __init__(self, clock: SimulatedClock) -> None:
        self.lines: list[str] = []
        self.seen: Counter[str] = Counter()
        self._clock = clock

    def __call__(self, event: str, *facts: object) -> None:
        words = " ".join(map(str, facts))
        self.lines.append(f"{self._clock.now:.10f} {event} {words}")

    @property
    def digest(self) -> str:
        """Two runs did the same if this is the same."""
        return sha256("\n".join(self.lines).encode()).hexdigest()
