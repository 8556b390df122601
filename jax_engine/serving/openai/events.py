"""Answers as server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jax_engine.serving.openai.errors import ApiError, api_error
from jax_engine.serving.openai.responses import encode
from jax_engine.serving.openai.running import ClientGone, for_client, unless_gone


async def event_stream(http: HttpRequest, events: AsyncGenerator[object]) -> Response:
    """A stream of events, which begins once there is a first one.

    An error before it has a status of its own. A later one is an event, the last but "[DONE]".
    """
    first = await for_client(http, anext(events))
    return _EventStream(first, events)


async def named_event_stream(http: HttpRequest, events: AsyncGenerator[dict[str, Any]]) -> Response:
    """As `event_stream`, of events that have a `type` and write errors themselves."""
    first = await for_client(http, anext(events))
    return _NamedEventStream(first, events)


async def with_errors[Event](
    events: AsyncIterator[Event], say: Callable[[ApiError], Iterable[Event]]
) -> AsyncGenerator[Event]:
    """Events. An error before the first one is raised; `say` makes events of a later one."""
    begun = False
    try:
        async for event in events:
            begun = True
            yield event
    except Exception as error:
        if not begun:
            raise
        for event in say(api_error(error)):
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
            with suppress(ClientGone):
                await unless_gone(receive, self._send_all(send))
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
    return b"data: " + encode(event) + b"\n\n"
