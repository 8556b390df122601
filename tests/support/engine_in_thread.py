"""The engine's process as a thread of this one: real sockets, real messages, no second interpreter.

What the process would run is run: it reads its settings from the socket, builds the engine, checks
and accepts requests, and reports. A test can look at the engine, and end the "process".
"""

import asyncio
import subprocess
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import zmq

from jax_engine import LLMEngine
from jax_engine.engine.engine_loop import EngineLoop
from jax_engine.processes.child_process import connect
from jax_engine.serving import engine_process
from jax_engine.serving.engine_server import EngineServer
from jax_engine.serving.messages import COMMANDS, REPORTS, Heartbeat, Report, Stop, encode
from tests.support.builders import small_engine
from tests.support.patience import HANG_S

BEAT_S = 0.5

POLL_MS = 20  # between looks at whether the thread is to end


class EngineThread:
    """What `EngineClient` asks of a process. `start` stands in for the function that makes one.

    Attributes:
        engine: once it is built.
        loop: the engine's loop.
        status: how it ended; None: it runs.
    """

    pid = 0

    def __init__(self, folder: str) -> None:
        self.engine: LLMEngine
        self.loop: EngineLoop
        self.status: int | None = None
        self.stdin = _Nothing()
        self._over = threading.Event()
        self._folder = folder
        self._thread = threading.Thread(target=self._run, daemon=True)

    def poll(self) -> int | None:
        return self.status

    def wait(self, timeout: float | None = None) -> int:
        """The status, once it has ended."""
        if not self._over.wait(timeout):
            raise subprocess.TimeoutExpired("the engine's thread", timeout or 0.0)
        assert self.status is not None
        return self.status

    def kill(self) -> None:
        """Ends it as SIGKILL looks to the other end: nothing more is said."""
        self._end(-9)

    def _end(self, status: int) -> None:
        if self.status is None:
            self.status = status
            self._over.set()

    def _run(self) -> None:
        context = zmq.Context()
        status = 1
        try:
            commands = connect(context, zmq.PULL, f"{self._folder}/{COMMANDS}")
            reports = connect(context, zmq.PUSH, f"{self._folder}/{REPORTS}")
            heard: Any = _UntilKilled(self, commands)
            said: Any = _UntilKilled(self, reports)
            status = engine_process._run(heard, said, self._folder)
        finally:
            context.destroy(linger=1000 if self.status is None else 0)
            self._end(status)


class _UntilKilled:
    """A socket that has no more to say, and takes no more, once the process has been killed."""

    def __init__(self, process: EngineThread, socket: Any) -> None:
        self._process, self._socket = process, socket

    def recv(self) -> bytes:
        while self._process.status is None:
            if self._socket.poll(POLL_MS):
                message: bytes = self._socket.recv()
                if self._process.status is None:
                    return message
        return encode(Stop())

    def send(self, message: bytes) -> None:
        if self._process.status is None:
            self._socket.send(message)


class _Nothing:
    def close(self) -> None:
        pass


def stub_engine() -> LLMEngine:
    """An engine without a device, whose process says of itself what a real one does."""
    engine = small_engine(has_text=False)
    engine.memory = engine.memory or type("Memory", (), {"num_blocks": 40})()
    return engine


def run_client[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """What a client gives, in an event loop of its own."""
    return asyncio.run(asyncio.wait_for(coroutine, HANG_S))


async def rest(stream: Any) -> Any:
    """The last output of a stream."""
    return [one async for one in stream][-1]


def in_threads(monkeypatch: Any) -> Callable[..., EngineThread]:
    """From now on each engine's process is a thread.

    Returns:
        A function that gives the last one, or that of a folder.
    """
    started: list[EngineThread] = []

    def start(folder: str) -> EngineThread:
        made = EngineThread(folder)
        started.append(made)
        made._thread.start()
        return made

    def server_of(engine: LLMEngine, send: Callable[[Report], None]) -> EngineServer:
        process = next(one for one in started if one._thread is threading.current_thread())
        server = EngineServer(engine, send)
        process.engine, process.loop = engine, server.loop
        return server

    def beat(address: str, loop: EngineLoop) -> None:
        process = next(one for one in started if one._folder == address)
        context = zmq.Context()
        try:
            reports = connect(context, zmq.PUSH, f"{address}/{REPORTS}")
            while process.status is None:
                reports.send(encode(Heartbeat(None)))
                process._over.wait(BEAT_S)  # no thread is left when Python ends
        finally:  # a context that is collected with an open socket waits for it
            context.destroy(linger=0)

    monkeypatch.setattr("jax_engine.serving.engine_client._start", start)
    monkeypatch.setattr(engine_process, "EngineServer", server_of)
    monkeypatch.setattr(engine_process, "_beat", beat)

    def process(folder: str | None = None) -> EngineThread:
        return next(one for one in reversed(started) if folder in (None, one._folder))

    return process
