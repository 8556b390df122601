"""`OpenAiIngress`: the deployment of Ray Serve behind its HTTP proxy, in front of the engines.

Serve's proxy chooses a replica before it has a request's body. So a deployment without an engine
reads the body first, and the handle by which it calls `LLMServer` routes by the prompt.
"""

import logging
from collections.abc import AsyncIterator
from typing import Any

from ray.exceptions import ActorDiedError, ActorUnavailableError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from jax_engine.ray.llm_server import HttpCall

logger = logging.getLogger("jax_engine")
TRIES = 3  # replicas that are asked, if each ends before it has said a word
GONE = (ActorDiedError, ActorUnavailableError)


class OpenAiIngress:
    """Passes requests on.

    Args:
        server: The handle of the deployment with the engines.
        max_body_bytes: Longer requests are refused.
    """

    def __init__(self, server: Any, max_body_bytes: int) -> None:
        self._server = server.options(method_name="asgi", stream=True)
        self._max_body = max_body_bytes

    async def __call__(self, request: Request) -> Response:
        """The answer to a request of any path."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self._max_body:  # the app says that it is too long
                break
        scope = request.scope
        path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/")) or "/"
        headers = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
        call = HttpCall(scope["method"], path, scope["query_string"], headers, bytes(body))
        return Passed(await self._answer(call))

    async def _answer(self, call: HttpCall) -> "Answer | Response":
        """What begins to be answered, by the first replica that says a word."""
        for _ in range(TRIES):
            parts = self._server.remote(call)
            try:
                return Answer(await anext(parts), parts)
            except GONE as error:
                logger.warning("a replica ended before it answered: %s", error)
            except BaseException:
                parts.cancel()
                raise
        message = f"{TRIES} replicas ended before they answered: ask again"
        problem = {"message": message, "type": "server_error", "param": None, "code": 503}
        return JSONResponse({"error": problem}, status_code=503)


class Answer:
    """The messages of an answer.

    Args:
        first: Those that have come.
        parts: Serve's generator of the others.
    """

    def __init__(self, first: list[Message], parts: Any) -> None:
        self._first, self._parts = first, parts

    async def send(self, send: Send) -> None:
        """Sends all messages. Whoever stops it, or a client that goes, has the request aborted."""
        try:
            async for messages in self._all():
                for one in messages:
                    await send(one)
        finally:
            self._parts.cancel()  # no effect behind the last one

    async def _all(self) -> AsyncIterator[list[Message]]:
        yield self._first
        async for messages in self._parts:
            yield messages


class Passed(Response):
    """An answer as it came from a replica."""

    def __init__(self, answer: Answer | Response) -> None:
        super().__init__()
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        if isinstance(self._answer, Response):
            await self._answer(scope, receive, send)
        else:
            await self._answer.send(send)
