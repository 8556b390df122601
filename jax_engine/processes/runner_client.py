"""Starts the process of a runner, calls its methods, and sees that it ends.

A thread listens to what the process says unasked. It ends the process, by a signal that also ends
one that was stopped, if it is silent, if it waits for ever, or if a step takes too long. All that
waits for it then raises.
"""

import logging
import os
import pickle
import shutil
import tempfile
import threading
import weakref
from contextlib import suppress
from typing import Any

import zmq

from jax_engine.errors import EngineDeadError
from jax_engine.processes.awake import Awake
from jax_engine.processes.child import (
    Child,
    Context,
    bind,
    close_sockets,
    end_child,
    how_it_ended,
    is_stopped,
    start_child,
)
from jax_engine.processes.wire import (
    ANSWERS,
    COMMANDS,
    NEWS,
    STOP,
    Answer,
    Beat,
    Call,
    Line,
    message,
)

POLL_S = 0.1
SILENCE_S = 10.0  # it beats twice a second; busy cores may delay that
START_S = 60.0  # Python itself starts, before the first beat
STILL_S = 12.0  # a call that does nothing for so long waits for what never comes
STEP_TIMEOUT_S = 300.0  # of one that computes, without what it compiles
STOP_S = 2.0  # for it to end when it is told to
NAME = "the process of the runner"
RANK = 0  # there is one process


class RunnerClient:
    """The process of a runner, seen from the driver. One thread at a time calls it.

    Args:
        module: What runs in the process; its only argument is the folder of the sockets.
        settings: What it builds its runners from; it must be possible to pickle it.
        num_devices: Devices that it must have where the host's cores are the devices.
        step_timeout: Seconds after which a call of a step has hung, compiling aside.

    Attributes:
        known: What the process said when it was ready.

    Raises:
        EngineDeadError: The process ended, or was silent, while it started.
        Exception: The process could not build its runners, and this is why.
    """

    def __init__(
        self,
        module: str,
        settings: Any,
        *,
        num_devices: int = 1,
        step_timeout: float = STEP_TIMEOUT_S,
    ) -> None:
        level = logging.getLogger("jax_engine").getEffectiveLevel()
        first = pickle.dumps((level, settings))
        self._folder = tempfile.mkdtemp(prefix="jax-engine-")  # for this user alone
        context = Context()
        calls, self._answers, news = (
            bind(context, kind, f"{self._folder}/{name}")
            for kind, name in ((zmq.PUSH, COMMANDS), (zmq.PULL, ANSWERS), (zmq.PULL, NEWS))
        )
        self._calls = calls
        child = start_child(module, self._folder, variables=forced_devices(num_devices))
        self._watch = Watch(child, news, self._folder, step_timeout)
        sockets = calls, self._answers, news
        owner = os.getpid()
        self.close = weakref.finalize(
            self, _end, self._watch, context, sockets, self._folder, owner
        )
        self._number = self._recovered = 0
        self._dropped: list[int] = []
        try:
            self._send([first])
            self.known = self._await(0)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._watch.child.pid

    def problem(self) -> str | None:
        """Why it cannot be called any more; None if it can."""
        return self._watch.problem if self.close.alive else "the runner was shut down"

    def post(self, runner: int, method: str, *given: Any) -> int:
        """Calls a method, and does not wait. Returns the call's number.

        Raises:
            EngineDeadError: The process has ended.
        """
        return self._post(runner, method, False, given, {})

    def ask(self, runner: int, method: str, *given: Any, **named: Any) -> Any:
        """Calls a method; returns what it returns.

        Raises:
            EngineDeadError: The process has ended, or was ended because it was stuck.
            Exception: What the method raised, or a call before it that nobody waited for.
        """
        return self._await(self._post(runner, method, True, given, named))

    def _post(
        self, runner: int, method: str, waits: bool, given: tuple[Any, ...], named: dict[str, Any]
    ) -> int:
        number = self._number + 1
        dropped = self._dropped[:]  # another thread may add to it
        parts = message(Call(number, runner, method, waits, dropped), (given, named))
        self._number = number
        if method == "recover":
            self._recovered = number
        self._send(parts)
        del self._dropped[: len(dropped)]
        return number

    def _send(self, parts: list[bytes]) -> None:
        """It waits only for the process to connect, at its start."""
        while True:
            self._check()
            try:
                self._calls.send_multipart(parts, zmq.NOBLOCK)
                return
            except zmq.Again:
                self._calls.poll(int(POLL_S * 1000), zmq.POLLOUT)

    def _await(self, number: int) -> Any:
        """What this call returned. Answers to calls before it are of those who stopped waiting."""
        while True:
            if not self._answers.poll(int(POLL_S * 1000)):
                self._check()
                continue
            header, body = self._answers.recv_multipart()
            answer = Answer(*pickle.loads(header))
            if answer.failed and answer.number >= self._recovered:
                raise pickle.loads(body)
            if answer.number == number:
                return pickle.loads(body)

    def _check(self) -> None:
        problem = self.problem()
        if problem is not None:
            raise EngineDeadError(problem)

    def ticket(self, number: int) -> "RemoteTicket":
        """The ticket of a step that this call launches."""
        return RemoteTicket(number, self._dropped)


class RemoteTicket:
    """A step of another process, which keeps what it computed as long as this object is there."""

    __slots__ = ("_dropped", "number")

    def __init__(self, number: int, dropped: list[int]) -> None:
        self.number, self._dropped = number, dropped

    def __del__(self) -> None:
        self._dropped.append(self.number)


class Watch:
    """Listens to a process, on a thread, and ends it if it must.

    Attributes:
        child: The process.
        problem: Why it has ended, once it has; None while it runs.
    """

    def __init__(
        self, child: Child, news: "zmq.Socket[bytes]", folder: str, step_timeout: float
    ) -> None:
        self.child = child
        self.problem: str | None = None
        self._news, self._folder, self._step_timeout = news, folder, step_timeout
        self._closing = threading.Event()
        self._beats = False
        self._last = Beat(None)
        self._thread = threading.Thread(target=self._run, name="jax-engine-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listens no more. Its socket may be closed then."""
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        awake, heard = Awake(2 * POLL_S), 0.0
        while not self._closing.is_set():
            if self._news.poll(int(POLL_S * 1000)):
                self._take()
                heard = awake.seconds
            awake.tick()
            problem = self._look(awake.seconds - heard)
            if problem is not None:
                self._end(problem)
                return

    def _take(self) -> None:
        news = pickle.loads(self._news.recv())
        if isinstance(news, Beat):
            self._beats, self._last = True, news
        elif isinstance(news, Line):
            logging.getLogger(news.logger).log(news.level, "rank %d: %s", RANK, news.text)

    def _look(self, silence: float) -> str | None:
        pid, step, still = self.child.pid, self._last.seconds, self._last.still
        if self.child.poll() is not None:
            return how_it_ended(self.child, NAME)
        if silence > SILENCE_S and (self._beats or silence > START_S or is_stopped(pid)):
            return f"{NAME} (pid {pid}) has said nothing for {silence:.0f} s, and was ended"
        if still > STILL_S:
            return f"a call in {NAME} (pid {pid}) has done nothing for {still:.0f} s, and was ended"
        if step is not None and step > self._step_timeout:
            return f"a step in {NAME} (pid {pid}) has run for {step:.0f} s, and was ended"
        return None

    def _end(self, problem: str) -> None:
        """Nothing of it is left when the problem is known."""
        self.child.kill()
        self.child.wait()
        while self._news.poll(0):  # its last words
            self._take()
        shutil.rmtree(self._folder, ignore_errors=True)
        self.problem = problem


def forced_devices(count: int) -> dict[str, str]:
    """The variables of a process that is to have several devices where it has no GPU.

    JAX reads them when it is imported, so no process can change them for itself.
    """
    if count == 1:
        return {}
    flags = os.environ.get("XLA_FLAGS", "")
    return {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={count}".strip()}


def _end(watch: Watch, context: Context, sockets: tuple[Any, ...], folder: str, owner: int) -> None:
    """Ends the process, the thread and the sockets. It is called once, and knows no client.

    Args:
        owner: The process that has them; a fork of it, which also comes to its end, has not.
    """
    if os.getpid() != owner:
        return
    watch.stop()
    with suppress(zmq.Again):  # it has left the socket, or has never come to it
        sockets[0].send_multipart(message(Call(0, 0, STOP, False, []), None), zmq.NOBLOCK)
    end_child(watch.child, STOP_S)
    close_sockets(context, sockets, folder)
