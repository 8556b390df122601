"""The process of a runner: it carries out its driver's calls, sends heartbeats and its log lines.

`RunnerClient` starts it. It ends when it is told to, or with the process that started it.
`RunnerServer` is the part without sockets: what the process does with each call.
"""

import logging
import pickle
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from jax_engine.errors import StepFailedError
from jax_engine.host_memory import allocating
from jax_engine.processes.child_process import (
    ActiveTime,
    Context,
    ThreadActivity,
    connect,
    live_as_child,
)
from jax_engine.processes.runner_messages import (
    ANSWERS,
    COMMANDS,
    REPORTS,
    STOP,
    Answer,
    Call,
    Heartbeat,
    Line,
    message,
)
from jax_engine.processes.stage_link import Folders
from jax_engine.progress_log import is_compiling
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
                self._error = picklable_error(error)
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


def picklable_error(error: Exception) -> Exception:
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
    reports, context = _ReportSocket(address), Context()
    calls = connect(context, zmq.PULL, f"{address}/{COMMANDS}")
    answers = connect(context, zmq.PUSH, f"{address}/{ANSWERS}")

    def send(parts: list[bytes]) -> None:
        answers.send_multipart(parts)

    server = RunnerServer(send)
    threading.Thread(target=_beat, args=(reports, server), daemon=True).start()
    try:
        level, settings, folders = pickle.loads(calls.recv())
        _send_lines(reports, level)
        try:
            known, server.runners = build(settings, folders)
        except Exception as error:
            send(message(Answer(0, True), picklable_error(error)))
            return 1
        send(message(Answer(0, False), known))
        while True:
            header, arguments = calls.recv_multipart()
            call = Call(*pickle.loads(header))
            if call.method == STOP:
                return 0
            server.do(call, arguments)
    finally:
        reports.close()
        context.destroy(linger=LINGER_MS)


class _ReportSocket:
    """A socket for what comes unasked, from any thread."""

    def __init__(self, address: str) -> None:
        self.closed = threading.Event()
        self._context = Context()
        self._socket = connect(self._context, zmq.PUSH, f"{address}/{REPORTS}")
        self._lock = threading.Lock()

    def send(self, reports: Heartbeat | Line) -> None:
        with self._lock:
            if not self.closed.is_set():
                self._socket.send(pickle.dumps(reports))

    def close(self) -> None:
        """Nothing is sent any more."""
        with self._lock:
            self.closed.set()
            self._context.destroy(linger=LINGER_MS)


def _beat(reports: _ReportSocket, server: RunnerServer) -> None:
    """Says twice a second that the process lives, and what becomes of its call."""
    awake, work = ActiveTime(2 * BEAT_S), ThreadActivity()
    call, ran, still, before = server.current, 0.0, 0.0, 0.0
    while not reports.closed.is_set():
        awake.tick()
        passed, before = awake.seconds - before, awake.seconds
        is_active = work.is_active(passed)
        if server.current is not call:
            call, ran, still = server.current, 0.0, 0.0
        elif is_compiling():
            still = 0.0
        elif is_active:
            ran, still = ran + passed, 0.0
        else:
            still += passed
        is_step = call is not None and call.method in STEPS
        reports.send(Heartbeat(ran if is_step else None, None if call is None else still))
        reports.closed.wait(BEAT_S)


class _Sender(logging.Handler):
    """Sends records to the driver, whose own logging says what becomes of them."""

    def __init__(self, reports: _ReportSocket, level: int) -> None:
        super().__init__(level)
        self._reports = reports

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._reports.send(Line(record.name, record.levelno, self.format(record)))
        except Exception:  # as of any handler: what is logged must not end what logs
            self.handleError(record)


def _send_lines(reports: _ReportSocket, level: int) -> None:
    """Sends this package's lines from `level` on, and warnings of others."""
    logging.getLogger().addHandler(_Sender(reports, logging.DEBUG))
    for name in OWN:
        logging.getLogger(name).setLevel(level)
