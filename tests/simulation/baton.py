"""Threads of which one runs at a time, and chance says which: so that they do the same again.

A thread hands the baton on where it may have to wait: while the device computes, when it has put
something into a queue, and for what comes from a queue, a lock or a thread's end. When nobody can
go on, a wake-up was lost.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from queue import Empty
from random import Random
from typing import Any
from unittest.mock import patch

from jax_engine.engine import calls, engine_loop


class Stuck(AssertionError):
    """No thread can go on, or another one has failed."""


class Baton:
    """
    Attributes:
        current: Name of the thread that runs; None before and after.
        num_switches: How often the baton went from one thread to another.
        errors: What threads have raised: all others stop, too.
        interrupt: Called by who waits for something: may raise, as Ctrl-C does.
    """

    def __init__(self, chance: Random) -> None:
        self.current: str | None = None
        self.num_switches = 0
        self.errors: list[BaseException] = []
        self.interrupt: Callable[[], None] = lambda: None
        self._chance = chance
        self._turns: dict[str, threading.Semaphore] = {}
        self._ready: dict[str, Callable[[], bool]] = {}
        self._all_done = threading.Semaphore(0)

    def run(self, jobs: Mapping[str, Callable[[], None]]) -> None:
        """Runs each job in a thread of its own, until all have ended.

        Raises:
            BaseException: The first that a job raised.
            Stuck: Some wait, and nobody will wake them.
        """
        for name, job in jobs.items():
            self.start(name, job)
        self._hand_on()
        self._all_done.acquire()
        self.current = None
        if self.errors:
            raise self.errors[0]

    def start(self, name: str, job: Callable[[], None]) -> None:
        """One more, from now on."""
        self._turns[name], self._ready[name] = threading.Semaphore(0), lambda: True
        threading.Thread(target=self._run_one, args=(name, job), daemon=True).start()

    def has_ended(self, name: str) -> bool:
        return name not in self._ready

    def is_alone(self) -> bool:
        """Whether no thread but this one can go on."""
        return not any(ready() for name, ready in self._ready.items() if name != self.current)

    def pause(self, ready: Callable[[], bool] = lambda: True) -> None:
        """Lets chance choose who goes on; returns when this thread is chosen, and `ready()`."""
        if self.current is None:
            return
        me = self.current
        self._ready[me] = ready
        self._hand_on()
        self._turns[me].acquire()
        if self.errors:
            raise Stuck(f"{me} stops: {self.errors[0]!r}")

    def wait(self, ready: Callable[[], bool]) -> None:
        """Returns when it is so."""
        if not ready():
            self.interrupt()
            self.pause(ready)
        if not ready():
            raise Stuck("the only thread waits for what nobody will do")

    def _run_one(self, name: str, job: Callable[[], None]) -> None:
        self._turns[name].acquire()
        try:
            if not self.errors:
                job()
        except BaseException as error:
            self.errors.append(error)
        del self._ready[name]
        self._hand_on()

    def _hand_on(self) -> None:
        if not self._ready:
            self._all_done.release()
            return
        names = [name for name, ready in self._ready.items() if self.errors or ready()]
        if not names:
            self.errors.append(Stuck(f"{sorted(self._ready)} wait, and nobody will wake them"))
            names = list(self._ready)
        chosen = self._chance.choice(names)
        self.num_switches += chosen != self.current
        self.current = chosen
        self._turns[chosen].release()


class SimulatedQueue:
    """In place of `SimpleQueue`."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton
        self._letters: deque[Any] = deque()

    def put(self, letter: Any) -> None:
        self._letters.append(letter)
        del letter  # it may hold an `LLM`
        self._baton.pause()

    def empty(self) -> bool:
        return not self._letters

    def get(self, timeout: float | None = None) -> Any:
        self._baton.wait(lambda: bool(self._letters))
        return self._letters.popleft()

    def get_nowait(self) -> Any:
        if not self._letters:
            raise Empty
        return self._letters.popleft()


class SimulatedLock:
    """In place of `RLock`."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton
        self._owner: str | None = None
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner != self._baton.current:
            self._baton.pause()  # whatever was looked at before may have changed
            self._baton.wait(lambda: not self._depth)
            self._owner = self._baton.current
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None


class SimulatedThread:
    """In place of `Thread`."""

    def __init__(self, baton: Baton, target: Callable[[], None], name: str) -> None:
        self._baton, self._target, self._name = baton, target, name

    def start(self) -> None:
        self._baton.start(self._name, self._target)

    def join(self) -> None:
        self._baton.wait(lambda: self._baton.has_ended(self._name))


@contextmanager
def simulated_threads(baton: Baton) -> Iterator[None]:
    """Inside, the engine's loop and its clients have only what hands the baton on."""

    def queue() -> SimulatedQueue:
        return SimulatedQueue(baton)

    threads: dict[str | None, SimulatedThread] = {}

    def thread(target: Callable[[], None], name: str, *, daemon: bool) -> SimulatedThread:
        threads[name] = SimulatedThread(baton, target, name)
        return threads[name]

    with (
        patch.object(calls, "SimpleQueue", queue),
        patch.object(engine_loop, "SimpleQueue", queue),
        patch.object(calls, "Thread", thread),
        patch.object(calls, "current_thread", lambda: threads.get(baton.current)),
    ):
        yield
