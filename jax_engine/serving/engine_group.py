"""The engines of an `AsyncLLM`: one, or several that are alike (data parallel)."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from typing import Any

from jax_engine.engine.request_router import RequestRouter
from jax_engine.errors import EngineDeadError, InvalidRequestError
from jax_engine.processes.placement import Place, places
from jax_engine.serving.engine_client import EngineClient
from jax_engine.serving.messages import Add, PauseMode, Question, Ready
from jax_engine.serving.open_requests import OpenRequests, Stream


class EngineGroup:
    """Sends each request to one of the engines, and the rest to all of them.

    An engine that dies takes its own requests with it. Those of the others go on, and no new ones
    are taken: whoever asks for the group's health is told.

    Args:
        settings: arguments of `EngineConfig` for each engine.
        size: how many engines there are; they start at the same time.
        devices_each: how many devices each of them needs.
        prefix_caching: whether they have a prefix cache.
        step_timeout: as for `EngineClient`.

    Raises:
        ConfigError: the machine has too few devices for them.
        JaxEngineError: as `EngineClient`; none of them runs then.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        size: int,
        *,
        devices_each: int,
        prefix_caching: bool,
        step_timeout: float,
    ) -> None:
        self._clients = _started(
            lambda place: EngineClient(settings, step_timeout, place), places(size, devices_each)
        )
        self._open = [OpenRequests(one) for one in self._clients]
        ready = self.ready
        self._router = RequestRouter(size, ready.block_size, ready.num_gpu_blocks * prefix_caching)
        self._numbers = itertools.count()

    @property
    def ready(self) -> Ready:
        """What an engine says of itself; they are alike."""
        return self._clients[0].ready

    @property
    def pids(self) -> list[int]:
        """The ids of the engines' processes."""
        return [one.pid for one in self._clients]

    @property
    def step_seconds(self) -> float | None:
        """As `EngineClient.step_seconds`, of the engine whose step has run for longest."""
        return max((one.step_seconds for one in self._clients if one.step_seconds), default=None)

    def problem(self) -> str | None:
        """Why new requests cannot be answered, as the first engine says; None if they can."""
        for number in range(len(self._clients)):
            problem = self._problem_of(number)
            if problem is not None:
                return problem
        return None

    def _problem_of(self, number: int) -> str | None:
        problem = self._clients[number].problem()
        return f"engine {number}: {problem}" if problem and len(self._clients) > 1 else problem

    @property
    def alive(self) -> list[bool]:
        """Whether each engine can answer."""
        return [self._problem_of(number) is None for number in range(len(self._clients))]

    @property
    def num_open(self) -> list[int]:
        """Each engine's requests without their last output."""
        return [len(one) for one in self._open]

    def __len__(self) -> int:
        """Requests without their last output."""
        return sum(map(len, self._open))

    def new_name(self) -> str:
        """A name that no engine has seen: a request id may be used again at once."""
        return str(next(self._numbers))

    def check_free(self, request_id: str) -> None:
        """
        Raises:
            InvalidRequestError: a request of this id is running.
        """
        if any(request_id in one for one in self._open):
            raise InvalidRequestError(f"request_id {request_id!r} is already running: use another")

    def outputs[Output](self, stream: Stream[Output], add: Add) -> AsyncGenerator[Output]:
        """Sends a request and yields its outputs. It is aborted when the reader stops."""
        if len(self._open) == 1:
            return self._open[0].outputs(stream, add)
        return self._routed(stream, add)

    async def _routed[Output](self, stream: Stream[Output], add: Add) -> AsyncGenerator[Output]:
        problem = self.problem()
        if problem is not None:
            raise EngineDeadError(problem)
        name, router = add.request_id, self._router
        lora = add.lora or {}
        salt = add.cache_salt, lora.get("lora_name"), lora.get("lora_path"), lora.get("digest")
        number = router.choose(name, add.token_ids, (*salt, add.embeds))
        try:
            async with aclosing(self._open[number].outputs(stream, add)) as outputs:
                async for output in outputs:
                    router.has_output(name)
                    yield output
        finally:
            router.end(name)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Ends requests; ids that are not running are ignored."""
        asked = list(request_ids)
        for one in self._open:
            one.abort(asked)

    async def ask(self, question: Question) -> list[Any]:
        """Each engine's answer, which it gives between two steps."""
        return await self._of_all(lambda one: one.ask(question))

    async def state(self, number: int) -> dict[str, Any]:
        """As `OpenRequests.state`, of one of the engines."""
        return await self._open[number].state()

    async def reset_prefix_caches(self) -> bool:
        """Whether each engine has emptied its prefix cache."""
        self._router.forget_prefixes()
        return all(await self.ask("reset_prefix_cache"))

    async def add_lora(self, lora: dict[str, Any]) -> tuple[bool, str]:
        """Loads an adapter into every engine, or into none.

        Returns:
            Whether any had not had it; and its digest.
        """
        tries = [one.ask_lora("add", lora) for one in self._open]
        found: list[Any] = await asyncio.gather(*tries, return_exceptions=True)
        errors = [one for one in found if isinstance(one, BaseException)]
        if errors:
            for one, answer in zip(self._open, found, strict=True):
                if not isinstance(answer, BaseException) and answer[0]:
                    with suppress(EngineDeadError):
                        await one.ask_lora("remove", lora_id=lora["lora_int_id"])
            raise errors[0]
        return any(new for new, _ in found), found[0][1]

    async def remove_lora(self, lora_id: int) -> bool:
        """Whether any engine had the adapter."""
        return any(await self._of_all(lambda one: one.ask_lora("remove", lora_id=lora_id)))

    async def pin_lora(self, lora_id: int) -> bool:
        """Whether every engine has it pinned."""
        return all(await self._of_all(lambda one: one.ask_lora("pin", lora_id=lora_id)))

    async def list_loras(self) -> set[int]:
        """The adapters that every engine holds."""
        held = await self._of_all(lambda one: one.ask_lora("list"))
        return set[int].intersection(*map(set, held))

    async def pause(self, mode: PauseMode, clear_cache: bool) -> None:
        """Returns when no engine steps any more. If that fails, none stays paused for it."""
        pauses = [asyncio.ensure_future(one.pause(mode, clear_cache)) for one in self._open]
        try:
            await asyncio.gather(*pauses)
        except BaseException:
            for one, begun in zip(self._open, pauses, strict=True):
                if not begun.cancel() and not begun.cancelled() and begun.exception() is None:
                    one.cancel_pause(begun.result())
            raise

    async def resume(self) -> None:
        """All engines go on."""
        await self._of_all(lambda one: one.resume())

    async def _of_all[T](self, ask: Callable[[OpenRequests], Awaitable[T]]) -> list[T]:
        return list(await asyncio.gather(*map(ask, self._open)))

    def close(self, timeout: float) -> None:
        """Ends all processes: those that have not ended within `timeout` s are killed."""
        if timeout and len(self._clients) > 1:
            with ThreadPoolExecutor(len(self._clients)) as pool:
                list(pool.map(lambda one: one.close(timeout), self._clients))
        for client in self._clients:
            client.close(timeout)

    def end_all(self, problem: str) -> None:
        """Nothing waits any more."""
        for one in self._open:
            one.end_all(problem)


def _started(start: Callable[[Place], EngineClient], all_places: list[Place]) -> list[EngineClient]:
    """Engines in all places; if one cannot be built, none. Raises the first error."""
    if len(all_places) == 1:
        return [start(all_places[0])]
    with ThreadPoolExecutor(len(all_places)) as pool:
        starting = [pool.submit(start, place) for place in all_places]
    errors = [one.exception() for one in starting]
    made = [one.result() for one, error in zip(starting, errors, strict=True) if error is None]
    for error in errors:
        if error is not None:
            for client in made:
                client.close(0.0)
            raise error
    return made
