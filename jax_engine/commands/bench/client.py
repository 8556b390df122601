"""A client of servers with OpenAI's API, which takes the time of each piece of an answer."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from jax_engine.commands.bench.benchmark_request import (
    BenchmarkRequest,
    EventReader,
    Outcome,
    Target,
)
from jax_engine.errors import need

if TYPE_CHECKING:
    import aiohttp


MOST_OF_AN_ERROR = 200  # characters
DAY_S = 86_400.0


class Client:
    """Sends requests over connections that it keeps. Used with `async with`.

    Args:
        max_concurrency: at most so many requests are open at once; None: any number.
        clock: seconds; a test's own.

    Raises:
        MissingPackageError: aiohttp is not installed.
    """

    def __init__(
        self,
        target: Target,
        *,
        max_concurrency: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        need("aiohttp", "The client of `bench serve`")
        self._target, self._clock = target, clock
        self._places = asyncio.Semaphore(max_concurrency or 1 << 30)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=DAY_S),
            headers={"Content-Type": "application/json", **self._target.headers},
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def ask(self, ask: BenchmarkRequest) -> Outcome:
        """Sends a request and reads its answer. What goes wrong is the outcome's `error`."""
        body, came = self._target.body(ask), self._clock()
        async with self._places:
            outcome = Outcome(self._clock(), ask.num_prompt)
            outcome.waited = outcome.sent - came
            try:
                await self._read(body, outcome)
            except Exception as error:
                outcome.error = f"{type(error).__name__}: {error}"
        return outcome

    async def get_json(self, url: str, headers: Mapping[str, str]) -> Any:
        """The answer to a GET."""
        assert self._session is not None
        async with self._session.get(url, headers=headers, raise_for_status=True) as answer:
            return msgspec.json.decode(await answer.read())

    async def _read(self, body: bytes, outcome: Outcome) -> None:
        assert self._session is not None
        async with self._session.post(self._target.url, data=body) as answer:
            if answer.status != 200:
                text = (await answer.text(errors="replace")).strip()
                outcome.error = f"HTTP {answer.status}: {text[:MOST_OF_AN_ERROR]}"
                return
            reader = EventReader(outcome)
            async for data in answer.content.iter_any():
                reader.feed(data, self._clock())
            reader.end()


async def replay(
    client: Client, asks: Sequence[BenchmarkRequest], times: Sequence[float]
) -> tuple[list[Outcome], float]:
    """Sends each request at its time.

    Args:
        times: seconds from the start, in order.

    Returns:
        Outcomes in the order of `asks`, and the seconds until the last one.
    """
    loop = asyncio.get_running_loop()
    start, tasks = loop.time(), []
    for ask, at in zip(asks, times, strict=True):
        wait = start + at - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)
        tasks.append(loop.create_task(client.ask(ask)))
    outcomes = await asyncio.gather(*tasks)
    return outcomes, loop.time() - start
