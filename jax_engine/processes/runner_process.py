"""The process of a runner: it waits for calls on a socket, beats, and sends the lines of its log.

`RunnerClient` starts it. It ends when it is told to, or with the process that started it.
"""

import logging
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from jax_engine.processes.awake import Awake, Work
from jax_engine.processes.child import Context, connect, live_as_child
from jax_engine.processes.runner_server import STEPS, RunnerServer, sendable
from jax_engine.processes.stage_link import Folders
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
from jax_engine.progress_log import is_compiling
from jax_engine.step import Runner

BEAT_S = 0.5
LINGER_MS = 1000
OWN = ("jax_engine", "pallas_kernels", "cpu_kernels")


def serve(
    address: str,
    build: Callable[[Any, Folders], tuple[Any, Sequence[Runner]]],
    live: Callable[[str], None] | None = None,
) -> int:
    """Runs the process of a runner; returns its exit status.

    Args:
        address: The folder of the sockets.
        build: Takes the driver's settings and the folders; returns what the driver gets to know,
            and the runners.
        live: Sees to it that this process ends with its driver; None: it is the driver's child.
    """
    (live or live_as_child)(address)
    news, context = _News(address), Context()
    calls = connect(context, zmq.PULL, f"{address}/{COMMANDS}")
    answers = connect(context, zmq.PUSH, f"{address}/{ANSWERS}")

    def send(parts: list[bytes]) -> None:
        answers.send_multipart(parts)

    server = RunnerServer(send)
    threading.Thread(target=_beat, args=(news, server), daemon=True).start()
    try:
        level, settings, folders = pickle.loads(calls.recv())
        _send_lines(news, level)
        try:
            known, server.runners = build(settings, folders)
        except Exception as error:
            send(message(Answer(0, True), sendable(error)))
            return 1
        send(message(Answer(0, False), known))
        while True:
            header, arguments = calls.recv_multipart()
            call = Call(*pickle.loads(header))
            if call.method == STOP:
                return 0
            server.do(call, arguments)
    finally:
        news.close()
        context.destroy(linger=LINGER_MS)


class _News:
    """A socket for what comes unasked, from any thread."""

    def __init__(self, address: str) -> None:
        self.closed = threading.Event()
        self._context = Context()
        self._socket = connect(self._context, zmq.PUSH, f"{address}/{NEWS}")
        self._lock = threading.Lock()

    def send(self, news: Beat | Line) -> None:
        with self._lock:
            if not self.closed.is_set():
                self._socket.send(pickle.dumps(news))

    def close(self) -> None:
        """Nothing is sent any more."""
        with self._lock:
            self.closed.set()
            self._context.destroy(linger=LINGER_MS)


def _beat(news: _News, server: RunnerServer) -> None:
    """Says twice a second that the process lives, and what becomes of its call."""
    awake, work = Awake(2 * BEAT_S), Work()
    call, ran, still, before = server.current, 0.0, 0.0, 0.0
    while not news.closed.is_set():
        awake.tick()
        passed, before = awake.seconds - before, awake.seconds
        goes_on = work.goes_on(passed)
        if server.current is not call:
            call, ran, still = server.current, 0.0, 0.0
        elif is_compiling():
            still = 0.0
        elif goes_on:
            ran, still = ran + passed, 0.0
        else:
            still += passed
        is_step = call is not None and call.method in STEPS
        news.send(Beat(ran if is_step else None, None if call is None else still))
        news.closed.wait(BEAT_S)


class _Sender(logging.Handler):
    """Sends records to the driver, whose own logging says what becomes of them."""

    def __init__(self, news: _News, level: int) -> None:
        super().__init__(level)
        self._news = news

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._news.send(Line(record.name, record.levelno, self.format(record)))
        except Exception:  # as of any handler: what is logged must not end what logs
            self.handleError(record)


def _send_lines(news: _News, level: int) -> None:
    """Sends this package's lines from `level` on, and warnings of others."""
    logging.getLogger().addHandler(_Sender(news, logging.DEBUG))
    for name in OWN:
        logging.getLogger(name).setLevel(level)
