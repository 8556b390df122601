"""Starts the engine's process, and exchanges messages with it."""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from jax_engine import errors
from jax_engine.checks import shown
from jax_engine.errors import ConfigError, EngineDeadError, JaxEngineError
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
from jax_engine.processes.placement import ANYWHERE, Place
from jax_engine.serving.messages import (
    COMMANDS,
    REPORTS,
    Command,
    Heartbeat,
    Ready,
    Report,
    Settings,
    StartFailed,
    Stop,
    decode_report,
    encode,
)

POLL_S = 0.1
# The engine's process says twice a second that it lives; busy cores may delay that.
SILENCE_S = 10.0
TICK_S = 0.5
STEP_TIMEOUT_S = 300.0  # a first step may compile for minutes


class EngineClient:
    """The engine's process, seen from the process that started it.

    Args:
        settings: arguments of `EngineConfig`.
        place: where the process runs.
        step_timeout: the engine is taken for dead when a step runs for so many seconds.

    Attributes:
        ready: what the engine says of itself.

    Raises:
        JaxEngineError: the engine could not be built; of the type that `LLM` raises.
        EngineDeadError: the process ended, or was stopped for long, while it started.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        step_timeout: float = STEP_TIMEOUT_S,
        place: Place = ANYWHERE,
    ) -> None:
        message = encode(Settings(_sendable(settings), *place))
        self._folder = tempfile.mkdtemp(prefix="jax-engine-")  # for this user alone
        self._context = Context()
        self._commands = bind(self._context, zmq.PUSH, f"{self._folder}/{COMMANDS}")
        self._reports: Any = bind(self._context, zmq.PULL, f"{self._folder}/{REPORTS}")
        self._awake = ActiveTime(2 * TICK_S)
        self._last_beat = self._awake.seconds
        self._step_seconds: float | None = None
        self._step_timeout = step_timeout
        self._closing = False
        self._failed: str | None = None
        self._listener: asyncio.Task[None] | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._process = _start(self._folder)
        try:
            self._post(message)
            self.ready = self._wait_until_ready()
        except BaseException:
            self.close(0.0)
            raise

    def _wait_until_ready(self) -> Ready:
        check = self._stops()
        while True:
            check()
            if self._reports.poll(int(POLL_S * 1000)):
                report = decode_report(self._reports.recv())
                if isinstance(report, Ready):
                    return report
                if isinstance(report, StartFailed):
                    raise error_of(report.error, report.message)
            elif self._process.poll() is not None and not self._reports.poll(int(POLL_S * 1000)):
                # It has not said why, not even in the moment between the two looks.
                raise EngineDeadError(f"{self._how_it_ended()} while it started")

    def _stops(self) -> Callable[[], None]:
        """Called again and again, it raises EngineDeadError once the process was long stopped."""
        awake, ran = ActiveTime(2 * POLL_S), 0.0

        def check() -> None:
            nonlocal ran
            awake.tick()
            if not is_stopped(self.pid):
                ran = awake.seconds
            elif awake.seconds - ran > SILENCE_S:
                raise EngineDeadError(f"the engine's process (pid {self.pid}) was stopped")

        return check

    @property
    def pid(self) -> int:
        """The id of the engine's process."""
        return self._process.pid

    @property
    def step_seconds(self) -> float | None:
        """For how long the current step had run at the last beat; None: none was running."""
        return self._step_seconds

    def problem(self) -> str | None:
        """Why the engine cannot answer now; None if it can."""
        if self._closing:
            return "the engine was shut down"
        if self._failed is not None:
            return self._failed
        if self._process.poll() is not None:
            return self._how_it_ended()
        silence = self._awake.seconds - self._last_beat
        if silence > SILENCE_S and self._listener is not None:
            return f"the engine's process (pid {self.pid}) has said nothing for {silence:.0f} s"
        step = self._step_seconds
        if step is not None and step > self._step_timeout:
            return f"a step of the engine (pid {self.pid}) has run for {step:.0f} s"
        return None

    def _how_it_ended(self) -> str:
        return how_it_ended(self._process, "the engine's process")

    def send(self, command: Command) -> None:
        """Sends a command. It never waits: there is no limit of messages under way.

        Raises:
            EngineDeadError: the engine cannot answer.
        """
        problem = self.problem()
        if problem is not None:
            raise EngineDeadError(problem)
        self._post(encode(command))

    def _post(self, message: bytes) -> None:
        """Sends a message. It waits only for the process to connect, at its start.

        Raises:
            EngineDeadError: the process ended, and nobody is at the other end of the socket.
        """
        check = self._stops()
        while True:
            try:
                self._commands.send(message, zmq.NOBLOCK)
                return
            except zmq.Again:
                if self._process.poll() is not None:
                    raise EngineDeadError(self._how_it_ended()) from None
                check()
                self._commands.poll(int(POLL_S * 1000), zmq.POLLOUT)

    def listen(self, take: Callable[[Report], None], died: Callable[[str], None]) -> None:
        """Hands each report to `take`, from a task of the running loop. May be called again.

        Args:
            died: called once, in the loop, when the process has ended without being told to.
        """
        if self._closing:
            return
        loop = asyncio.get_running_loop()
        listener = self._listener
        if listener is not None and listener.get_loop() is loop and not listener.done():
            return
        self._last_beat = self._awake.seconds
        self._listener = loop.create_task(self._listen(take))
        self._ticker = loop.create_task(self._tick())
        threading.Thread(
            target=self._watch, args=(loop, died), daemon=True, name="jax-engine-watch"
        ).start()

    def _watch(self, loop: asyncio.AbstractEventLoop, died: Callable[[str], None]) -> None:
        self._process.wait()
        if not self._closing:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(died, self._failed or self._how_it_ended())

    async def _listen(self, take: Callable[[Report], None]) -> None:
        socket = zmq.asyncio.Socket.from_socket(self._reports)
        while True:
            report = decode_report(await socket.recv())
            self._last_beat = self._awake.seconds
            if isinstance(report, Heartbeat):
                self._step_seconds = report.step_seconds
            else:
                take(report)

    async def _tick(self) -> None:
        """Counts silence, and kills a process that stalls: whoever waits for it is told then.

        Silence counts only while this process runs: Ctrl-Z stops both.
        """
        while self._failed is None:
            await asyncio.sleep(TICK_S)
            self._awake.tick()
            problem = self.problem()
            if self._closing:  # on another thread, which gives the process time to end
                return
            self._failed = problem
        self._process.kill()

    def close(self, timeout: float) -> None:
        """Ends the process: it is asked to stop, and killed if it has not within `timeout` s."""
        if self._closing:
            return
        self._closing = True
        for task in (self._listener, self._ticker):
            if task is not None and not task.get_loop().is_closed():
                task.cancel()
                # pyzmq leaves it to a loop that would not hear of the next socket with this number.
                task.get_loop().remove_reader(self._reports.FD)
        with suppress(zmq.Again):  # it has left the socket, or has never come to it
            self._commands.send(encode(Stop()), zmq.NOBLOCK)
        end_child(self._process, timeout)
        close_sockets(self._context, (self._commands, self._reports), self._folder)


def _start(folder: str) -> Child:
    return start_child("jax_engine.serving.engine_process", folder)


def _sendable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """
    Raises:
        ConfigError: a setting cannot be sent to another process.
    """
    for name, value in settings.items():
        try:
            msgspec.msgpack.encode(value)
        except TypeError:
            raise ConfigError(
                f"{name} must be plain data where the engine has a process of its own, got "
                f"{shown(value)}"
            ) from None
    return dict(settings)


def error_of(name: str, message: str) -> JaxEngineError:
    """An error of the engine's process, as one of this process."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, JaxEngineError):
        return kind(message)
    return JaxEngineError(f"{name}: {message}")
