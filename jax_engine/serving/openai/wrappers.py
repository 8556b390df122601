"""What is done to every request and answer, whatever its endpoint: some of it by flags."""

import re
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
