"""What may go wrong at a boundary of the engine: a step that raises, memory that is not there."""

from random import Random

from jax_engine.errors import OutOfMemoryError
from tests.simulation.log import EventLog


class DeviceError(RuntimeError):
    """As XLA raises one when a step fails on the device, or the device has no memory for it."""


class Interruption(BaseException):
    """As KeyboardInterrupt: caught by nothing that catches `Exception`."""


INJECTED = (DeviceError, Interruption)


class Faults:
    """Decides at each boundary whether something goes wrong there.

    Args:
        rate: Share of the calls of `strike` that raise.
        full_rate: Share of the requests for host memory that are refused.

    Attributes:
        num_struck: How often it raised.
        is_due: Whether the next call of `strike` raises, unless none does.
    """

    def __init__(self, chance: Random, log: EventLog, *, rate: float, full_rate: float) -> None:
        self.rate, self.full_rate = rate, full_rate
        self.num_struck = 0
        self.is_due = False
        self._chance = chance
        self._log = log

    def strike(self, place: str) -> None:
        """Raises one of `INJECTED`, now and then."""
        if self.rate and (self.is_due or self._chance.random() < self.rate):
            self.num_struck += 1
            self.is_due = False
            kind = self._chance.choice(INJECTED)
            self._log("fault", place, kind.__name__)
            self._log.seen[f"fault: {place}"] += 1
            raise kind(place)

    def check_fits(self, what: str, num_bytes: int) -> None:
        """In place of `host_memory.check_fits`, which asks the real machine, for swap space."""
        if what.startswith("swapped") and self.full_rate and self._chance.random() < self.full_rate:
            self._log.seen["no host memory"] += 1
            raise OutOfMemoryError(f"{what}: the simulated host has no {num_bytes} bytes")
