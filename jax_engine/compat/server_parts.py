"""What a program imports from vLLM that has a server of its own around `AsyncLLMEngine`.

Such a server has its own FastAPI application and routes; vLLM's parts parse its flags, listen, and
end an answer whose client has gone. `jax-engine serve` uses none of this.
"""

import asyncio
import functools
import resource
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import uvicorn

from jax_engine.serving.api.server import ends_by_signal

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

VLLM_HTTP_TIMEOUT_KEEP_ALIVE = 5  # seconds; of `vllm.envs`
OPEN_FILES = 65535


class UsageContext(StrEnum):
    """From where an engine is made; nothing is reported to anybody here."""

    UNKNOWN_CONTEXT = "UNKNOWN_CONTEXT"
    LLM_CLASS = "LLM_CLASS"
    API_SERVER = "API_SERVER"
    OPENAI_API_SERVER = "OPENAI_API_SERVER"
    OPENAI_BATCH_RUNNER = "OPENAI_BATCH_RUNNER"
    ENGINE_CONTEXT = "ENGINE_CONTEXT"


def set_ulimit(target_soft_limit: int = OPEN_FILES) -> None:
    """Lets the process have so many open files, as far as the system allows: one a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < target_soft_limit:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target_soft_limit, hard))


def with_cancellation[T](
    handler: Callable[..., Awaitable[T]],
) -> Callable[..., Coroutine[Any, Any, T | None]]:
    """A handler of a route that ends when its client goes.

    Args:
        handler: Its request is the argument `raw_request`, or the second one.
    """

    @functools.wraps(handler)
    async def wrapper(*args: Any, **kwargs: Any) -> T | None:
        request = args[1] if len(args) > 1 else kwargs["raw_request"]
        answering = asyncio.ensure_future(handler(*args, **kwargs))
        leaving = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            return await answering if answering.done() else None
        finally:
            for task in (answering, leaving):
                task.cancel()

    return wrapper


async def _disconnected(request: "Request") -> None:
    """Returns when the client has gone; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Server(uvicorn.Server):
    """It closes at SIGINT and SIGTERM, behind which the program goes on."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals while the server runs."""
        with ends_by_signal(self.handle_exit):
            yield


async def serve_http(
    app: "FastAPI", sock: socket.socket | None, enable_ssl_refresh: bool = False, **settings: Any
) -> Coroutine[Any, Any, None]:
    """Serves an application until the process is told to end (SIGINT, SIGTERM).

    Args:
        sock: A bound socket; None: `host` and `port` of the settings.
        enable_ssl_refresh: Is not heeded: `jax-engine serve` reads certificates anew.
        settings: What `uvicorn.Config` takes.

    Returns:
        What is left to be awaited after the end: nothing.
    """
    server = _Server(uvicorn.Config(app, **settings))
    await server.serve(None if sock is None else [sock])
    return _nothing()


async def _nothing() -> None: ...
