"""A process of a runner, as its driver sees it: its sockets, and a thread that watches it.

The thread receives what the process sends unasked: heartbeats and log lines. It kills the process
if that is silent, if a call waits for ever, or if a step takes too long; the signal also ends a
process that was stopped. Where several processes share a model, the end of one ends all.
"""

import logging
import os
import pickle
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import zmq

from jax_engine.processes.child_process import (
    ActiveTime,
    Child,
    Context,
    bind,
    close_sockets,
    end_child,
    how_it_ended,
    is_stopped,
    start_child,
)
from jax_engine.processes.runner_messages import (
    ANSWERS,
    COMMANDS,
    REPORTS,
    STOP,
    Call,
    Heartbeat,
    Line,
    message,
)

POLL_S = 0.1
SILENCE_S = 10.0  # it beats twice a second; busy cores may delay that
START_S = 60.0  # Python itself starts, before the first beat
STILL_S = 12.0  # a call that does nothing for so long waits for what never comes
STOP_S = 2.0  # for it to end when it is told to

type Start = Callable[..., Child]  # as `start_child`


class ProcessGroup:
    """What becomes of all processes of a runner: they end together.

    Attributes:
        problem: Why they have ended; None while they run. Nothing is left of them when it is known.
        beats: The last beat of each process, by rank.
    """

    def __init__(self) -> None:
        self.problem: str | None = None
        self.beats: dict[int, Heartbeat] = {}
        self._processes: list[tuple[Child, str]] = []
        self._lock = threading.Lock()

    def add(self, child: Child, folder: str) -> None:
        """A process, and the folder of its sockets."""
        with self._lock:
            self._processes.append((child, folder))

    def end(self, problem: str) -> None:
        """Ends all of them. The first problem is the one that is told."""
        with self._lock:
            if self.problem is not None:
                return
            for child, _ in self._processes:
                child.kill()
            for child, folder in self._processes:
                child.wait()
                shutil.rmtree(folder, ignore_errors=True)
            self.problem = problem

    def stillness(self) -> float:
        """For how long no process has done anything though one is in a call.

        One that waits for another, which computes or compiles, is not stuck.
        """
        known = [beat.still for beat in self.beats.values() if beat.still is not None]
        return min(known, default=0.0)


class RunnerChild:
    """A process of a runner.

    Args:
        module: What runs in the process; its only argument is the folder of the sockets.
        rank: Which of several it is.
        variables: Environment variables to set.
        inherited: Descriptors that it gets.
        step_timeout: Seconds after which a call of a step has hung, compiling and waiting aside.
        start: What starts it, in place of `start_child`.

    Attributes:
        folder: That of the sockets.
        calls, answers: The sockets.
    """

    def __init__(
        self,
        module: str,
        fate: ProcessGroup,
        *,
        rank: int = 0,
        variables: dict[str, str],
        inherited: Sequence[int] = (),
        step_timeout: float,
        start: "Start | None" = None,
    ) -> None:
        self.folder = tempfile.mkdtemp(prefix="jax-engine-")  # for this user alone
        context = Context()
        self.calls, self.answers, reports = (
            bind(context, kind, f"{self.folder}/{name}")
            for kind, name in ((zmq.PUSH, COMMANDS), (zmq.PULL, ANSWERS), (zmq.PULL, REPORTS))
        )
        child = (start or start_child)(
            module, self.folder, variables=variables, inherited=inherited
        )
        fate.add(child, self.folder)
        self.pid = child.pid
        self._watch = watch = Watchdog(child, reports, fate, rank, step_timeout)
        sockets = self.calls, self.answers, reports
        self.close = weakref.finalize(self, _end, watch, context, sockets, self.folder, os.getpid())

    def watch_no_more(self) -> None:
        """Its end is no problem any more."""
        self._watch.stop()

    def say_stop(self) -> None:
        """Tells it to end, which `close` does, too, and then waits for it."""
        if self.close.alive:  # when Python ends, children may end before their client does
            _say_stop(self.calls)

    def send(self, parts: list[bytes]) -> bool:
        """Whether it could be sent: only at its start the process may not be there yet."""
        try:
            self.calls.send_multipart(parts, zmq.NOBLOCK)
        except zmq.Again:
            self.calls.poll(int(POLL_S * 1000), zmq.POLLOUT)
            return False
        return True


class Watchdog:
    """Listens to a process, on a thread, and ends it if it must.

    Attributes:
        child: The process.
    """

    def __init__(
        self,
        child: Child,
        reports: "zmq.Socket[bytes]",
        fate: ProcessGroup,
        rank: int,
        step_timeout: float,
    ) -> None:
        self.child = child
        self._reports, self._step_timeout = reports, step_timeout
        self._fate, self._rank = fate, rank
        self._closing = threading.Event()
        self._beats = False
        self._last = Heartbeat(None, None)
        self._thread = threading.Thread(target=self._run, name="jax-engine-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listens no more. Its socket may be closed then."""
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        awake, heard = ActiveTime(2 * POLL_S), 0.0
        while not self._closing.is_set():
            if self._reports.poll(int(POLL_S * 1000)):
                self._take()
                heard = awake.seconds
            awake.tick()
            problem = self._look(awake.seconds - heard)
            if problem is not None:
                self._end(problem)
                return

    def _take(self) -> None:
        reports = pickle.loads(self._reports.recv())
        if isinstance(reports, Heartbeat):
            self._beats = True
            self._last = self._fate.beats[self._rank] = reports
        elif isinstance(reports, Line):
            logging.getLogger(reports.logger).log(
                reports.level, "rank %d: %s", self._rank, reports.text
            )

    def _look(self, silence: float) -> str | None:
        step, still = self._last.seconds, self._fate.stillness()
        name = f"the process of the runner (rank {self._rank}, pid {self.child.pid})"
        if self.child.poll() is not None:
            return how_it_ended(self.child, f"the process of the runner (rank {self._rank})")
        if silence > SILENCE_S and (self._beats or silence > START_S or is_stopped(self.child.pid)):
            return f"{name} has said nothing for {silence:.0f} s, and was ended"
        if still > STILL_S and self._last.still is not None:
            return f"a call in {name} has done nothing for {still:.0f} s, and was ended"
        if step is not None and step > self._step_timeout:
            return f"a step in {name} has run for {step:.0f} s, and was ended"
        return None

    def _end(self, problem: str) -> None:
        """Nothing of it is left when the problem is known."""
        self.child.kill()
        self.child.wait()
        while self._reports.poll(0):  # its last words
            self._take()
        self._fate.end(problem)


def _say_stop(calls: "zmq.Socket[bytes]") -> None:
    with suppress(zmq.Again):  # it has left the socket, or has never come to it
        calls.send_multipart(message(Call(0, 0, STOP, False, []), None), zmq.NOBLOCK)


def _end(
    watch: Watchdog, context: Context, sockets: tuple[Any, ...], folder: str, owner: int
) -> None:
    """Ends the process, the thread and the sockets. It is called once, and knows no client.

    Args:
        owner: The process that has them; a fork of it, which also comes to its end, has not.
    """
    if os.getpid() != owner:
        return
    watch.stop()
    _say_stop(sockets[0])
    end_child(watch.child, STOP_S)
    close_sockets(context, sockets, folder)
