"""ASGI middleware: what happens to every request before its endpoint sees it.

Some of it changes paths and headers: a root path, extra slashes, request ids. Some of it refuses:
requests without a key, and bodies that are compressed, too long, too slow, or of too many values.
`ExpectGuard` closes the connection of a client that has announced a body (`Expect: 100-continue`)
which nobody reads.

Decoding and checking a JSON body holds the event loop for about a microsecond for each value,
however short, and a body of 30 MB may have 15 million values. Its bytes alone cost little. So
values have a limit of their own. They are counted as the body comes, packet by packet, before it
is decoded.
"""

import asyncio
import hmac
import re
import uuid
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jax_engine.checks import shown
from jax_engine.serving.api.api_errors import ApiError
from jax_engine.serving.api.web_page import FILES as PAGE_FILES

REQUEST_ID = b"x-request-id"


class Slashes:
    """Takes slashes too many off paths, as of a base URL that ends with one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] == "http":
            path = re.sub("//+", "/", scope["path"])
            scope = {**scope, "path": path.removesuffix("/") or "/"}
        await self._app(scope, receive, send)


class RootPath:
    """Takes a prefix off the paths that have it, as of a proxy that does not take it off itself.

    Args:
        prefix: begins with a slash and does not end with one.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app, self._prefix = app, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] == "http":
            scope = {**scope, "root_path": self._prefix, "path": self._without(scope["path"])}
        await self._app(scope, receive, send)

    def _without(self, path: str) -> str:
        has_prefix = f"{path}/".startswith(f"{self._prefix}/")
        return (path.removeprefix(self._prefix) or "/") if has_prefix else path


class RequestIds:
    """Gives each answer the header `X-Request-Id`: the request's own, or a new one.

    An answer that has an id has it from there.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = scope["headers"]
        found = next((value for name, value in headers if name == REQUEST_ID and value), b"")
        if not found:
            found = uuid.uuid4().hex.encode()
            kept = [(name, value) for name, value in headers if name != REQUEST_ID]
            scope = {**scope, "headers": [*kept, (REQUEST_ID, found)]}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (REQUEST_ID, found)]}
            await send(message)

        await self._app(scope, receive, answer)


MAX_VALUES = 1 << 19
_STRUCTURE = b'",[{'
_REST = bytes(one for one in range(256) if one not in _STRUCTURE)


class ValueCount:
    """Counts what begins a value, outside of strings: commas and opening brackets.

    Attributes:
        count: so far. A body has at most one value more.
    """

    def __init__(self) -> None:
        self.count = 0
        self._in_string, self._escapes = False, b""

    def take(self, piece: bytes) -> None:
        """Goes on with the next bytes of the body."""
        data = self._escapes + piece
        tail = len(data) - len(data.rstrip(b"\\"))
        self._escapes = b"\\" * (tail % 2)  # what it escapes comes next
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = data.translate(None, _REST).split(b'"')
        self.count += sum(map(len, parts[self._in_string :: 2]))
        self._in_string ^= len(parts) % 2 == 0


# These need no key. The page of /docs has no place for one.
KEYLESS_PATHS = frozenset({
    "/health", "/ready", "/ping", "/version", "/docs", "/openapi.json", *PAGE_FILES
})  # fmt: skip
BODY_S = 60.0  # so long the body of a request may take


class KeyGuard:
    """Asks for `Authorization: Bearer KEY`, or `x-api-key: KEY` as Anthropic's clients send it."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app, self._keys = app, [one.encode() for one in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers 401."""
        free = (
            scope["type"] != "http"
            or scope["path"] in KEYLESS_PATHS
            or scope["method"] == "OPTIONS"
        )
        if free or self._knows(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            "a valid key is needed: Authorization: Bearer KEY, or x-api-key: KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error.response(scope["path"])(scope, receive, send)

    def _knows(self, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        own = headers.get("x-api-key", "")
        if scheme.lower() == "bearer" and self._is_key(bearer.strip()):
            return True
        return self._is_key(own)

    def _is_key(self, given: str) -> bool:
        token = given.encode("latin-1")  # the bytes that came
        return any([hmac.compare_digest(token, one) for one in self._keys])  # each takes its time


class StaggeredStart:
    """Lets requests with a body begin one after another, each in a turn of the event loop.

    A thousand that come at once would else begin in a single turn, a millisecond or two each, and
    all others (/health, running streams) would wait for seconds.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._lock = app, asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on in its turn."""
        if scope["type"] == "http" and scope["method"] == "POST":
            async with self._lock:
                await asyncio.sleep(0)
        await self._app(scope, receive, send)


class ExpectGuard:
    """Closes the connection behind an answer to a client that still waits for status 100.

    Such a client may send its body nevertheless, or its next request: nobody can tell which.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http" or "expect" not in Headers(scope=scope):
            await self._app(scope, receive, send)
            return
        wanted = False

        async def read() -> Message:
            nonlocal wanted
            wanted = True
            return await receive()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and not wanted:
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, read, answer)


class BodyGuard:
    """Refuses bodies that are compressed, those that are too long or have too many values, at once
    by their length or when too much has come, and those that are not complete in time."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers 415, 501, 413, 408 or 400."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        coding = headers.get("content-encoding", "identity")
        if coding.lower() != "identity":
            await _encoded(coding).response(scope["path"])(scope, receive, send)
            return
        coding = headers.get("transfer-encoding", "chunked")
        if coding.lower() != "chunked":
            await _transferred(coding).response(scope["path"])(scope, receive, send)
            return
        length = headers.get("content-length", "")
        if length.isdigit() and (len(length) > 18 or int(length) > self._limit):
            await self._too_large().response(scope["path"])(scope, receive, send)
            return
        try:
            await self._app(scope, self._bounded(receive), send)
        except _Refused as refused:  # before an answer began: its endpoint waits for the whole body
            await refused.error.response(scope["path"])(scope, receive, send)

    def _bounded(self, receive: Receive) -> Receive:
        taken, complete, values = 0, False, ValueCount()
        end = asyncio.get_running_loop().time() + BODY_S

        async def bounded() -> Message:
            nonlocal taken, complete
            if complete:  # whoever waits now, waits for the client to go
                return await receive()
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                raise _Refused(_too_slow()) from None
            piece = message.get("body", b"")
            taken += len(piece)
            if b"\0" in piece:  # UTF-16, of which values are not counted; never in JSON in UTF-8
                raise _Refused(ApiError(400, "the body must be JSON in UTF-8"))
            values.take(piece)
            if values.count + 1 > MAX_VALUES:
                raise _Refused(_too_many())
            complete = not message.get("more_body", False)
            if taken > self._limit:
                raise _Refused(self._too_large())
            return message

        return bounded

    def _too_large(self) -> ApiError:
        message = f"the body must have at most {self._limit} bytes"
        return ApiError(413, message, code="body_too_large")


def _too_many() -> ApiError:
    message = f"the body must hold at most {MAX_VALUES} values: send several requests"
    return ApiError(413, message, code="body_too_large")


def _encoded(coding: str) -> ApiError:
    message = f"Content-Encoding must be identity, got {shown(coding)}: send plain JSON"
    return ApiError(415, message, code="body_encoded", headers={"Accept-Encoding": "identity"})


def _transferred(coding: str) -> ApiError:
    message = f"Transfer-Encoding must be chunked, got {shown(coding)}: send plain JSON"
    return ApiError(501, message, code="body_encoded", headers={"Connection": "close"})


def _too_slow() -> ApiError:
    message = f"the body must be complete within {BODY_S:g} seconds"
    return ApiError(408, message, code="body_too_slow", headers={"Connection": "close"})


class _Refused(BaseException):
    """Passes through those who handle errors, up to the guard."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error)
        self.error = error
