"""`LLMServer`: a deployment of Ray Serve that has an engine, and answers as its HTTP API does.

The app is the one behind `jax-engine serve`, without a port. A request comes as an `HttpCall`, and
its answer goes back as ASGI messages, so that streams, errors and headers are the same bytes.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message

from jax_engine.commands.serve import engine_args, server_settings
from jax_engine.errors import EngineDeadError
from jax_engine.progress_log import show_progress_lines
from jax_engine.ray.autoscaling import KV_CACHE_USAGE
from jax_engine.ray.llm_config import LLMConfig
from jax_engine.serving.api.app import make_app
from jax_engine.serving.api.service import Service
from jax_engine.serving.async_llm import AsyncLLM

logger = logging.getLogger("jax_engine")
WATCH_S = 0.2
LAST_WORDS_S = 1.0  # for requests of a dead engine to get their errors, before the replica ends


@dataclass(frozen=True)
class HttpCall:
    """A request whose body has come whole.

    Attributes:
        path: Behind the prefix of the application's route.
        headers: Names in lower case, and values.
    """

    method: str
    path: str
    query_string: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def scope(self) -> dict[str, Any]:
        """The request as ASGI has it."""
        return {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1",
            "method": self.method, "scheme": "http", "path": self.path,
            "raw_path": self.path.encode(), "query_string": self.query_string, "root_path": "",
            "headers": self.headers, "client": None, "server": None,
        }  # fmt: skip


class LLMServer:
    """An engine in a process below this replica, and the app that asks it.

    Args:
        config: Its model and its settings.

    Raises:
        JaxEngineError: As `AsyncLLM`; Serve tries again, and says so.
    """

    async def __init__(self, config: LLMConfig) -> None:  # type: ignore[misc]
        show_progress_lines()
        args = config.arguments()
        settings = server_settings(args)
        self._llm = AsyncLLM.from_engine_args(engine_args(args), step_timeout=args.step_timeout)
        service = Service(self._llm, settings)
        await service.adapters.load_all(settings.lora_modules)
        self._app: ASGIApp = make_app(service)
        self._usage = 0.0
        self._watch = asyncio.ensure_future(self._until_dead())

    async def _until_dead(self) -> None:
        """Ends this process soon after its engine, as a server does: Serve starts another one.

        A health check would fail three times before that, and until then a replica that refuses
        at once would be the one with the shortest queue.
        """
        while self._llm.is_running:
            await asyncio.sleep(WATCH_S)
        logger.error("%s: the replica ends", self._llm.dead_error)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                while self._llm.num_unfinished_requests:
                    await asyncio.sleep(WATCH_S / 10)
        await asyncio.sleep(WATCH_S)  # for the last messages to leave
        os._exit(1)

    async def asgi(self, call: HttpCall) -> AsyncIterator[list[Message]]:
        """Yields the messages of an answer, as many at a time as there are.

        Closed before the answer's end, as Serve does when a client has gone, it aborts the request.
        """
        messages: asyncio.Queue[Message | None] = asyncio.Queue()
        task = asyncio.ensure_future(run_app(self._app, call, messages))
        try:
            while (message := await messages.get()) is not None:
                found = [message]
                while not messages.empty() and (message := messages.get_nowait()) is not None:
                    found.append(message)
                yield found
                if message is None:
                    break
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def check_health(self) -> None:
        """What Serve asks; as `/health`.

        Raises:
            EngineDeadError: The engine cannot answer any more.
        """
        await self._llm.check_health()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What Serve asks, for `QueueAndKVCachePolicy`: the share of the KV cache in use.

        With several engines (`data_parallel_size`) it is that of all their caches.
        """
        with suppress(EngineDeadError):
            found = await self._llm.get_stats_of_engines()
            used = sum(one["num_used_blocks"] for one in found)
            self._usage = used / max(1, sum(one["num_blocks"] for one in found))
        return {KV_CACHE_USAGE: self._usage}

    def __del__(self) -> None:
        """What Serve calls when the replica has answered its last request."""
        watch, llm = getattr(self, "_watch", None), getattr(self, "_llm", None)
        if watch is not None:
            watch.cancel()
        if llm is not None:
            llm.shutdown()


async def run_app(app: ASGIApp, call: HttpCall, messages: asyncio.Queue[Message | None]) -> None:
    """Gives the app a request, and puts the messages of its answer into a queue, and None last."""
    body: list[Message] = [{"type": "http.request", "body": call.body, "more_body": False}]

    async def receive() -> Message:
        if body:
            return body.pop()
        await asyncio.Event().wait()  # a client that goes has this task cancelled
        raise AssertionError

    async def send(message: Message) -> None:
        messages.put_nowait(message)

    try:
        await app(call.scope(), receive, send)
    except Exception:  # which the app has answered: it raises it once more for a server's log
        logger.exception("a request failed")
    finally:
        messages.put_nowait(None)
