"""The messages between a driver and the process of its runners: headers, and pickled values.

The driver sends calls of a runner's methods, numbered from 1. A step is the same data as within one
process; a ticket is the number of the call that launched it. The process answers the calls for
which the driver waits, and reports unasked that a call has failed. Heartbeats and log lines have a
socket of their own, since they come while a call computes.
"""

import pickle
from typing import Any, NamedTuple

COMMANDS, ANSWERS, REPORTS = "commands", "answers", "reports"  # names of the sockets
STOP = "stop"  # in place of a method: the process ends


class Call(NamedTuple):
    """What comes before the pickled arguments of a method.

    Attributes:
        runner: Which one, counted from 0: the model's, then that of its draft model.
        waits: Whether the driver waits for what the method returns.
        dropped: Tickets that the driver has forgotten since the last call.
    """

    number: int
    runner: int
    method: str
    waits: bool
    dropped: list[int]


class Answer(NamedTuple):
    """What comes before the pickled value that a call has returned, or the error that it raised."""

    number: int
    failed: bool


class Heartbeat(NamedTuple):
    """Sent twice a second.

    Attributes:
        seconds: For how long the current call of a step has computed; None: no such call runs.
        still: For how long the current call, of any kind, has done nothing; None: none runs.
    """

    seconds: float | None
    still: float | None


class Line(NamedTuple):
    """A line of the process's log, of the logger of this name."""

    logger: str
    level: int
    text: str


def message(header: tuple[Any, ...], value: Any) -> list[bytes]:
    """The two parts of a message."""
    return [pickle.dumps(tuple(header)), pickle.dumps(value, pickle.HIGHEST_PROTOCOL)]
