"""A process that this package starts: how it begins, how its end is noticed, and its sockets.

It is a new interpreter and not a fork: JAX's threads would not be in a fork, and a script needs no
`if __name__ == "__main__"`. The two processes share a folder that only this user can read, in which
their sockets are.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from jax_engine.processes.ray_child import RayChild

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
