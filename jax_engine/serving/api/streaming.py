"""Server-sent events, and work that is cancelled when its client closes the connection.

The prompts of one request run side by side, and end together.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jax_engine.serving.api.api_errors import ApiError, api_error
from jax_engine.serving.api.endpoint_responses import encode

KEEP_ALIVE = object()
"""In place of an event: a comment, by which a proxy sees that the connection is in use."""


class ClientDisconnected(Exception):
    """The client has closed its connection: nobody reads an answer."""


async def wait_for_disconnect(receive: Receive) -> None:
    """Waits until the client has closed its connection. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def for_client[T](http: HttpRequest, work: Awaitable[T]) -> T:
    """The result of work that is cancelled when its client goes away.

    Raises:
        ClientDisconnected: it has gone away.
    """
    return await unless_disconnected(http.receive, work)


async def unless_disconnected[T](receive: Receive, work: Awaitable[T]) -> T:
    """As `for_client`."""
    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnected
        return task.result()
    finally:
        await _end([task, watch])


async def last_of[T](streams: Sequence[AsyncIterator[T]]) -> list[T]:
    """The last output of each; all are ended if one fails."""
    tasks = [asyncio.ensure_future(_last(one)) for one in streams]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


async def _end(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _last[T](stream: AsyncIterator[T]) -> T:
    async for output in stream:
        last = output
    return last


async def merged[T](streams: Sequence[AsyncGenerator[T]]) -> AsyncGenerator[tuple[int, T]]:
    """The outputs of all as they come, each with its stream's number; all end with the reader.

    Who reads slowly holds up nothing but this: each stream keeps together what is not read.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]):
            async for output in streams[0]:
                yield 0, output
        return
    queue: asyncio.Queue[tuple[int, T] | Exception | None] = asyncio.Queue(1)

    async def pass_on(number: int, stream: AsyncIterator[T]) -> None:
        try:
            async for output in stream:
                await queue.put((number, output))
        except Exception as error:
            await queue.put(error)
        else:
            await queue.put(None)

    tasks = [asyncio.ensure_future(pass_on(i, one)) for i, one in enumerate(streams)]
    left = len(tasks)
    try:
        while left:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        await _end(tasks)


async def event_stream(
    http: HttpRequest, events: AsyncGenerator[object], keep_alive_s: float = 0.0
) -> Response:
    """A stream of events, which begins once there is a first one.

    An error before it has a status of its own. A later one is an event, the last but "[DONE]".

    Args:
        keep_alive_s: After so many seconds without an event the stream says that it is alive, in a
            comment that clients skip. It may be the first thing said. 0: it never does.
    """
    if keep_alive_s > 0:
        events = kept_alive(events, keep_alive_s)
    first = await for_client(http, anext(events))
    return _EventStream(first, events)


async def named_event_stream(http: HttpRequest, events: AsyncGenerator[dict[str, Any]]) -> Response:
    """As `event_stream`, of events that have a `type` and write errors themselves."""
    first = await for_client(http, anext(events))
    return _NamedEventStream(first, events)


async def with_errors[Event](
    events: AsyncIterator[Event], as_events: Callable[[ApiError], Iterable[Event]]
) -> AsyncGenerator[Event]:
    """Events. An error before the first one is raised; `as_events` makes events of a later one."""
    begun = False
    try:
        async for event in events:
            begun = True
            yield event
    except Exception as error:
        if not begun:
            raise
        for event in as_events(api_error(error)):
            yield event


async def kept_alive(events: AsyncGenerator[object], interval_s: float) -> AsyncGenerator[object]:
    """Events, and `KEEP_ALIVE` whenever none has come for so many seconds."""
    async with aclosing(events):
        while True:
            coming = asyncio.ensure_future(anext(events))
            try:
                while not (await asyncio.wait({coming}, timeout=interval_s))[0]:
                    yield KEEP_ALIVE
            finally:
                if not coming.done():
                    await _end([coming])
            try:
                event = coming.result()
            except StopAsyncIteration:
                return
            yield event


class _EventStream[Event](Response):
    media_type = "text/event-stream"

    def __init__(self, first: Event, events: AsyncGenerator[Event]) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._first, self._events = first, events

    def init_headers(self, headers: object = None) -> None:
        super().init_headers(headers)  # type: ignore[arg-type]
        self.raw_headers = [one for one in self.raw_headers if one[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with suppress(ClientDisconnected):
                await unless_disconnected(receive, self._send_all(send))
        finally:
            await self._events.aclose()  # its requests end with it

    async def _send_all(self, send: Send) -> None:
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(start)
        async for line in self._lines():
            await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _lines(self) -> AsyncIterator[bytes]:
        yield _line(self._first)
        try:
            async for event in self._events:
                yield _line(event)
        except Exception as error:
            yield _line(api_error(error).body())
        yield b"data: [DONE]\n\n"


class _NamedEventStream(_EventStream[dict[str, Any]]):
    async def _lines(self) -> AsyncIterator[bytes]:
        yield _named_line(self._first)
        async for event in self._events:
            yield _named_line(event)


def _named_line(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\n".encode() + _line(event)


def _line(event: object) -> bytes:
    if event is KEEP_ALIVE:
        return b": keep-alive\n\n"
    return b"data: " + encode(event) + b"\n\n"
