"""Answers the requests of a file, so many at a time.

The requests go to the server's app without a port, so each gets the same body as over HTTP.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message

from jax_engine.commands.batch_file import Line, Output, answered, refused
from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import ServerSettings, Service
from jax_engine.serving.async_llm import AsyncLLM

_HEADERS = [(b"content-type", b"application/json")]


async def ask(app: ASGIApp, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
    """Posts a request; returns the answer's status and body."""
    content = msgspec.json.encode(body)
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
        "root_path": "", "headers": _HEADERS, "client": None, "server": None,
    }  # fmt: skip
    messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]
    status, parts = 500, []

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()  # the client stays
        raise AssertionError

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except Exception:
        if not parts:  # else the app has said it, and raises it for a server's log
            raise
    return status, b"".join(parts)


@dataclass
class Batch:
    """
    Args:
        make_llm: called once there is something to answer.
        most: requests under way at once.
        progress: told how many lines have been written since.

    Attributes:
        written: how many lines have been written.
    """

    make_llm: Callable[[], AsyncLLM]
    settings: ServerSettings
    most: int
    output: Output
    progress: Callable[[int], Any]
    written: int = 0
    _llm: AsyncLLM | None = None
    _app: Any = None
    _window: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._window = asyncio.Semaphore(self.most)

    async def run(self, lines: Iterable[Line]) -> None:
        """Answers all lines that are not answered yet.

        Raises:
            JaxEngineError: the engine cannot be built, an adapter cannot be offered, or the engine
                has ended.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                async for line in _in_a_thread(lines):
                    if self.output.has(line):
                        continue
                    if line.problem is None and self._llm is None:
                        await self._start()
                    await self._window.acquire()
                    self.output.expect(line)
                    tasks.create_task(self._answer(line))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            if self._llm is not None:
                self._llm.shutdown()

    async def _start(self) -> None:
        self._llm = self.make_llm()
        service = Service(self._llm, self.settings)
        self._app = make_app(service)
        await service.adapters.load_all(self.settings.lora_modules)

    async def _answer(self, line: Line) -> None:
        if line.problem is not None:
            self._write(line, refused(line), failed=True)
            return
        status, body = await ask(self._app, line.url, line.body)
        assert self._llm is not None
        if status >= 500 and self._llm.errored:  # no answer: the next run asks again
            raise self._llm.dead_error
        self._write(line, answered(line, status, body), failed=status != 200)

    def _write(self, line: Line, text: bytes, *, failed: bool) -> None:
        self.output.failed += failed
        written = self.output.write(line, text)
        for _ in range(written):
            self._window.release()
        self.written += written
        self.progress(written)


async def _in_a_thread(lines: Iterable[Line]) -> AsyncIterator[Line]:
    """Reads beside the loop: the input may be a pipe that is slow.

    A daemon thread, since nobody waits for those: Ctrl-C ends the command, though the thread still
    reads from a pipe in which nothing comes.
    """
    loop = asyncio.get_running_loop()
    source, asked = iter(lines), queue.SimpleQueue[asyncio.Future[Line | None] | None]()

    def read() -> None:
        while (answer := asked.get()) is not None:
            line, error = None, None
            try:
                line = next(source, None)
            except Exception as problem:
                error = problem
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(_give, answer, line, error)

    threading.Thread(target=read, name="reads the input", daemon=True).start()
    try:
        while True:
            answer: asyncio.Future[Line | None] = loop.create_future()
            asked.put(answer)
            if (line := await answer) is None:
                return
            yield line
    finally:
        asked.put(None)


def _give(
    answer: "asyncio.Future[Line | None]", line: Line | None, error: Exception | None
) -> None:
    if answer.done():  # nobody waits for it
        return
    if error is None:
        answer.set_result(line)
    else:
        answer.set_exception(error)
