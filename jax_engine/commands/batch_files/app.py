"""Asks the server's app, without a port: a request gets the same body as over HTTP."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message

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
