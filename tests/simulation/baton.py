"""Threads of which one runs at a time, and chance says which: so that they do the same again.

A thread hands the baton on where it may have to wait: before and after it has the engine, while
the device computes, and for what comes by mail. When nobody can go on, a wake-up was lost.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from types import TracebackType
from typing import Any

from jax_engine.engine import mailbox


class Stuck(AssertionError):
    """No thread can go on, or another one has failed."""


class Baton:
    """
    Attributes:
        current: Name of the thread that runs; None before and after.
        num_switches: How often the baton went from one thread to another.
    """

    def __init__(self, chance: Random) -> None:
        self.current: str | None = None
        self.num_switches = 0
        self._chance = chance
        self._turns: dict[str, threading.Semaphore] = {}
        self._ready: dict[str, Callable[[], bool]] = {}
        self._errors: list[BaseException] = []
        self._all_done = threading.Semaphore(0)

    def run(self, jobs: Mapping[str, Callable[[], None]]) -> None:
        """Runs each job in a thread of its own, until all have ended.

        Raises:
            BaseException: The first that a job raised.
            Stuck: Some wait, and nobody will wake them.
        """
        for name, job in jobs.items():
            self._turns[name], self._ready[name] = threading.Semaphore(0), lambda: True
            threading.Thread(target=self._run_one, args=(name, job), daemon=True).start()
        self._hand_on()
        self._all_done.acquire()
        self.current = None
        if self._errors:
            raise self._errors[0]

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
        if self._errors:
            raise Stuck(f"{me} stops: {self._errors[0]!r}")

    def _run_one(self, name: str, job: Callable[[], None]) -> None:
        self._turns[name].acquire()
        try:
            if not self._errors:
                job()
        except BaseException as error:
            self._errors.append(error)
        del self._ready[name]
        self._hand_on()

    def _hand_on(self) -> None:
        if not self._ready:
            self._all_done.release()
            return
        names = [name for name, ready in self._ready.items() if self._errors or ready()]
        if not names:
            self._errors.append(Stuck(f"{sorted(self._ready)} wait, and nobody will wake them"))
            names = list(self._ready)
        chosen = self._chance.choice(names)
        self.num_switches += chosen != self.current
        self.current = chosen
        self._turns[chosen].release()


class SimulatedLock:
    """In place of `EngineLock`: who waits for it hands the baton on."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton
        self._owner: str | None = None
        self._depth = 0

    def check_process(self) -> None:
        """There is one."""

    def __enter__(self) -> None:
        if self._depth == 0 or self._owner != self._baton.current:
            self._baton.pause(lambda: self._depth == 0)
            self._owner = self._baton.current
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._baton.pause()


class SimulatedQueue:
    """In place of a mailbox's `SimpleQueue`: who waits for a letter hands the baton on."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton
        self._letters: deque[Any] = deque()

    def put(self, letter: Any) -> None:
        self._letters.append(letter)

    def empty(self) -> bool:
        return not self._letters

    def get(self) -> Any:
        if not self._letters:
            self._baton.pause(lambda: bool(self._letters))
        if not self._letters:
            raise Stuck("the only thread waits for a letter that nobody will send")
        return self._letters.popleft()


@contextmanager
def simulated_mail(baton: Baton) -> Iterator[None]:
    """Inside, mailboxes are made of simulated queues."""
    real: Any = mailbox.SimpleQueue
    mailbox.SimpleQueue = lambda: SimulatedQueue(baton)  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        mailbox.SimpleQueue = real  # type: ignore[misc]
