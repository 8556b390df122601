"""Work in forked copies of a process that has imported everything: ready within milliseconds.

A child says over a pipe what it is at, and the parent kills it when one piece takes too long.
"""

import ctypes
import json
import multiprocessing
import os
import resource
import selectors
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.patience import HANG_S

# What a bug may allocate beyond what the process has at the fork.
MOST_BYTES = 8 << 30
PR_SET_PDEATHSIG = 1

Say = Callable[[Any, float], None]


@dataclass
class Child:
    """A process that runs, and what it has said."""

    job: Any
    pid: int
    pipe: int
    scratch: str
    until: float
    unread: bytes = b""
    said: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Done:
    """What a child said until it ended, and how it ended: "ended", "died" or "hung"."""

    job: Any
    said: list[Any]
    how: str


def in_children(
    jobs: Iterable[Any], work: Callable[[Any, Say], None], at_once: int
) -> Iterator[Done]:
    """Does each job in a child of its own, so many at once; in the order in which they end.

    Args:
        work: Gets the job and `say(what, limit_s)`, which tells the parent something that JSON can
            hold, and that the child is to be heard of again within so many seconds.
    """
    todo = iter(jobs)
    running: dict[int, Child] = {}
    with selectors.DefaultSelector() as ready:
        while True:
            while len(running) < at_once and (job := next(todo, None)) is not None:
                child = _start(job, work)
                running[child.pipe] = child
                ready.register(child.pipe, selectors.EVENT_READ)
            if not running:
                return
            wait = min(child.until for child in running.values()) - time.monotonic()
            for key, _ in ready.select(max(wait, 0)):
                if not _hear(running[key.fd]):
                    yield _end(running.pop(key.fd), ready, "")
            for child in [c for c in running.values() if c.until < time.monotonic()]:
                yield _end(running.pop(child.pipe), ready, "hung")


def _start(job: Any, work: Callable[[Any, Say], None]) -> Child:
    scratch = tempfile.mkdtemp(prefix="mutation-")
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return Child(job, pid, read, scratch, time.monotonic() + HANG_S)
    try:  # from here on, the child
        _die_with_parent()
        os.setsid()
        os.close(read)
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(quiet, stream)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = scratch
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        def say(what: Any, limit_s: float) -> None:
            os.write(write, json.dumps([what, limit_s]).encode() + b"\n")

        work(job, say)
        os._exit(0)
    except BaseException:
        os._exit(3)


def _hear(child: Child) -> bool:
    """Reads what a child has said; whether it still has something to say."""
    chunk = os.read(child.pipe, 1 << 20)
    *lines, child.unread = (child.unread + chunk).split(b"\n")
    for line in lines:
        what, limit_s = json.loads(line)
        child.said.append(what)
        child.until = time.monotonic() + limit_s
    return bool(chunk)


def _end(child: Child, ready: selectors.BaseSelector, how: str) -> Done:
    ready.unregister(child.pipe)
    os.close(child.pipe)
    if how == "hung":
        os.killpg(child.pid, signal.SIGKILL)
    status = os.waitpid(child.pid, 0)[1]
    shutil.rmtree(child.scratch, ignore_errors=True)
    return Done(child.job, child.said, how or ("died" if status else "ended"))


def in_new_process(work: Callable[..., Any], *args: Any) -> Any:
    """The result of a function in a process of its own: pytest collects once in each."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, initializer=_die_with_parent) as pool:
        return pool.submit(work, *args).result()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
