"""The process of a runner, without its sockets: what it does with each call of the driver."""

import logging
import pickle
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from jax_engine.errors import StepFailedError
from jax_engine.host_memory import allocating
from jax_engine.processes.wire import Answer, Call, message
from jax_engine.step import Runner, Step

# Methods that carry out a step; the others compile, or measure, for as long as that takes.
STEPS = ("launch", "logits", "sample", "collect", "host_room", "recover")
# A step's own words, as in `StepPipeline.step`: this process knows how much memory it has.
ALLOCATING = "a step, to which a lower gpu_memory_utilization would leave more,"


class RunnerServer:
    """Carries out calls of runners, in the order in which they come.

    After a call that raised, all calls fail with its error until `recover`, as a driver that has
    launched steps ahead may not have heard of it.

    Args:
        send: Takes the two parts of an answer.

    Attributes:
        runners: Set before the first call.
        current: The call that runs; None: none does.
    """

    def __init__(self, send: Callable[[list[bytes]], None]) -> None:
        self.runners: Sequence[Runner] = ()
        self.current: Call | None = None
        self._send = send
        self._tickets: dict[int, Any] = {}
        self._error: Exception | None = None

    def do(self, call: Call, arguments: bytes) -> None:
        """Carries out one call, and answers it if the driver waits or if it fails."""
        for number in call.dropped:
            self._tickets.pop(number, None)
        if call.method == "recover":
            self._error = None
        if self._error is None:
            self.current = call
            try:
                with allocating(ALLOCATING):
                    value = self._call(call, *pickle.loads(arguments))
            except Exception as error:
                self._error = sendable(error)
                self._send(message(Answer(call.number, True), self._error))
            else:
                if call.waits:
                    self._send(message(Answer(call.number, False), value))
            finally:
                self.current = None
        elif call.waits:
            self._send(message(Answer(call.number, True), self._error))

    def _call(self, call: Call, first: tuple[Any, ...], named: dict[str, Any]) -> Any:
        runner, method, given = self.runners[call.runner], call.method, list(first)
        if method == "launch":
            self._tickets[call.number] = runner.launch(self._own(given[0]))
            return None
        if method in ("logits", "sample", "collect"):
            given[0] = self._tickets[given[0]]
        return getattr(runner, method)(*given, **named)

    def _own(self, step: Step) -> Step:
        """A step with the tickets themselves in place of their numbers."""
        unread = step.unread
        if unread is None:
            return step
        found = [self._tickets[number] for number in unread.drawn]
        verified = None if unread.verified is None else self._tickets[unread.verified]
        return step._replace(unread=unread._replace(drawn=found, verified=verified))


def sendable(error: Exception) -> Exception:
    """The error, with where it was raised as a note; another one if it cannot be pickled."""
    where = "".join(traceback.format_exception(error))
    logging.getLogger("jax_engine").debug("a call of the runner has failed:\n%s", where)
    try:
        again: Exception = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
    except Exception:  # whatever a class of others does when it is pickled
        again = StepFailedError(f"a step failed: {error!r}")
    again.add_note(f"In the process of the runner:\n{where}")
    return again
