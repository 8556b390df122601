"""A process that this package starts: its start, its sockets, the watch over it, and its end.

A child is a new interpreter and not a fork: JAX's threads would not survive a fork, and a script
needs no `if __name__ == "__main__"`. Parent and child share a folder that only this user can read.
It holds their sockets. `RayChild` is the process of a Ray actor as its driver sees it: by its
process id, and without Ray.

A parent takes a child that stays silent for dead. Silence must not count while the parent itself is
stopped, as by Ctrl-Z, when the clock goes on: so `ActiveTime` counts only seconds in which this
process runs. `ThreadActivity` tells whether its other threads do anything.
"""

import ctypes
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from jax_engine.errors import EngineDeadError

TERM_S = 2.0  # for libzmq to take back what a context held
PR_SET_PDEATHSIG = 1  # prctl's

type Child = subprocess.Popen[bytes] | RayChild
Context = zmq.Context[zmq.Socket[bytes]]


def start_child(
    module: str,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    inherited: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts `python -m MODULE ARGUMENTS`, which finds the packages that this process finds.

    Args:
        variables: Environment variables to set beside this process's own.
        inherited: Descriptors of this process that it has, too.
    """
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(dict.fromkeys([package, *filter(None, sys.path)]))
    command = [sys.executable, "-m", module, *arguments]
    environment = {**os.environ, "PYTHONPATH": path, **(variables or {})}
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, pass_fds=inherited)


def how_it_ended(child: Child, name: str) -> str:
    """Waits for its end, and says how that was: "NAME (pid 5) ended with signal 9"."""
    status = child.wait()
    if status is None:  # a child of Ray's, which alone gets to know
        return f"{name} (pid {child.pid}) ended"
    how = f"exit status {status}" if status >= 0 else f"signal {-status}"
    return f"{name} (pid {child.pid}) ended with {how}"


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped, as by SIGSTOP. Where there is no /proc, nobody knows."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state == "T"


def end_child(child: Child, timeout: float) -> None:
    """Waits `timeout` seconds for its end, kills it if need be, and closes its standard input."""
    try:
        child.wait(timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdin is not None:
        child.stdin.close()


def bind(context: Context, kind: int, path: str) -> "zmq.Socket[bytes]":
    """A socket of the process that starts the other, without a limit of messages."""
    socket = context.socket(kind)
    socket.set_hwm(0)
    socket.bind(f"ipc://{path}")
    return socket


def connect(context: Context, kind: int, path: str) -> "zmq.Socket[bytes]":
    """A socket without a limit of messages: nobody who reads slowly delays a step."""
    socket = context.socket(kind)
    socket.set_hwm(0)
    socket.connect(f"ipc://{path}")
    return socket


def close_sockets(context: Context, sockets: Iterable[Any], folder: str) -> None:
    """Closes all sockets of a context, and removes their folder."""
    for socket in sockets:
        socket.close(linger=0)
    # libzmq was seen to wait here for ever, for a reason not known. Should it do so again, this
    # call goes on, and the context's threads are left behind.
    ending = threading.Thread(target=context.term, name="zmq context", daemon=True)
    with suppress(RuntimeError):  # Python itself ends, and starts no thread
        ending.start()
        ending.join(TERM_S)
    shutil.rmtree(folder, ignore_errors=True)


def live_as_child(folder: str) -> None:
    """For a child: signals are for the process that started it, with which it ends.

    Args:
        folder: That of their sockets, which nobody would remove then.
    """
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    with suppress(AttributeError):  # only Linux has it
        # One that was stopped goes on when the other dies, and then sees that. Linux also sends
        # this signal when only the thread that started this process ends: it changes nothing then.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGCONT)
    threading.Thread(target=end_with_parent, args=(folder,), daemon=True).start()


def end_with_parent(folder: str) -> None:
    """Ends this process when the other end of its standard input is closed."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


class RayChild:
    """The process of an actor: as much of a `subprocess.Popen` as is asked of one.

    Args:
        actor: Its handle, which keeps it.
        serving: What Ray promises of the call that runs in it.

    Raises:
        EngineDeadError: There is no such process any more.
    """

    stdin = None

    def __init__(self, actor: Any, pid: int, serving: Any) -> None:
        self.pid = pid
        self._kept = actor, serving
        try:
            self._end = os.pidfd_open(pid)
        except ProcessLookupError:
            raise EngineDeadError(f"a Ray actor (pid {pid}) ended while it started") from None

    def poll(self) -> int | None:
        """Its exit status is Ray's to know: 0 if it has ended, None if not."""
        return 0 if self._has_ended(0.0) else None

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits for its end, whatever its status is.

        Raises:
            subprocess.TimeoutExpired: It runs after so many seconds.
        """
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("a Ray actor", timeout or 0.0)
        return None

    def kill(self) -> None:
        """Ends it at once, also if it was stopped."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._end, signal.SIGKILL)

    def _has_ended(self, timeout: float | None) -> bool:
        ending = select.poll()
        ending.register(self._end, select.POLLIN)
        return bool(ending.poll(None if timeout is None else 1000 * timeout))

    def __del__(self) -> None:
        if hasattr(self, "_end"):
            os.close(self._end)


LEAST_WORK = 0.01  # cores; a process that waits uses less, and the beats of another thread too


class ActiveTime:
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


class ThreadActivity:
    """Whether the other threads of this process do anything: compute, or read from a disk.

    One that waits in a collective for a device that never comes does neither.
    """

    def __init__(self) -> None:
        self._before = _usage()

    def is_active(self, seconds: float) -> bool:
        """Whether they did something since the last call, which was so many seconds ago."""
        computed, read = _usage()
        before, self._before = self._before, (computed, read)
        return computed - before[0] > LEAST_WORK * seconds or read > before[1]


def _usage() -> tuple[float, int]:
    """Processor seconds of all threads but this one, and pages read from a disk."""
    pages = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    return time.process_time() - time.thread_time(), pages
