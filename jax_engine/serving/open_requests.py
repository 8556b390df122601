"""The requests that wait for an engine's process: their streams, and questions to the engine."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import Any

from jax_engine.engine.pieces import News
from jax_engine.errors import EngineDeadError
from jax_engine.serving.engine_client import EngineClient, error_of
from jax_engine.serving.messages import (
    Abort,
    Add,
    Answer,
    Ask,
    AskLoRA,
    GiveUp,
    LoRAAction,
    Outputs,
    Pause,
    PauseMode,
    Pooled,
    Question,
    Refused,
    Report,
    Resume,
)
from jax_engine.serving.streams import CompletionStream, PoolingStream, Stream


class OpenRequests:
    """Hands what the engine's process reports to those who wait for it, in one event loop."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._streams: dict[str, Stream[Any]] = {}  # by the name that the engine knows
        self._names: dict[str, str] = {}  # request id: that name
        self._questions = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._names

    async def outputs[Output](self, stream: Stream[Output], add: Add) -> AsyncGenerator[Output]:
        """Sends a request and yields its outputs; who stops reading ends it."""
        self._client.listen(self._take, self.end_all)
        name = add.request_id
        self._streams[name], self._names[stream.request_id] = stream, name
        try:
            self._client.send(add)
            while (output := await stream.next()) is not None:
                yield output
        finally:
            self._forget(name)
            if not stream.ended:
                with suppress(EngineDeadError):  # then nothing is left to be ended
                    self._client.send(Abort([name]))

    def abort(self, request_ids: Iterable[str]) -> None:
        """Ends requests; ids that are not running are ignored."""
        names = [self._names[one] for one in request_ids if one in self._names]
        if names:
            self._client.send(Abort(names))

    async def ask(self, question: Question) -> Any:
        """Asks the engine, which answers between two steps."""
        number = next(self._questions)
        return await self._answer(number, Ask(number, question))

    async def ask_lora(
        self, action: LoRAAction, lora: dict[str, Any] | None = None, lora_id: int = 0
    ) -> Any:
        """Asks the engine to do something about an adapter. Raises its errors."""
        number = next(self._questions)
        return await self._answer(number, AskLoRA(number, action, lora, lora_id))

    async def pause(self, mode: PauseMode, clear_cache: bool) -> int:
        """Asks the engine for a pause. A task that is cancelled while it waits gives it up.

        Returns:
            Its number, by which `give_up` ends it.
        """
        number = next(self._questions)
        try:
            await self._answer(number, Pause(number, mode, clear_cache))
        except asyncio.CancelledError:
            self.give_up(number)
            raise
        return number

    def give_up(self, number: int) -> None:
        """Ends one pause, or the wait for it."""
        with suppress(EngineDeadError):
            self._client.send(GiveUp(number))

    async def resume(self) -> None:
        """Asks the engine to go on."""
        number = next(self._questions)
        await self._answer(number, Resume(number))

    async def _answer(self, number: int, message: Ask | AskLoRA | Pause | Resume) -> Any:
        """Sends a message, and waits for the answer of its number."""
        self._client.listen(self._take, self.end_all)
        self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            self._client.send(message)
            return await self._answers[number]
        finally:
            del self._answers[number]

    async def state(self) -> dict[str, Any]:
        """As `AsyncLLM.get_state`. A request that nobody waits for any more has no id."""
        state: dict[str, Any] = await self.ask("state")
        for one in state["map"]["requests"]:
            stream = self._streams.get(one["request_id"])
            one["name"] = one["request_id"]
            one["request_id"] = None if stream is None else stream.request_id
        return state

    def end_all(self, problem: str) -> None:
        """The engine's process has ended: so does everything that waits for it."""
        for stream in self._streams.values():
            stream.fail(EngineDeadError(problem))
        for future in self._answers.values():
            if not future.done():
                future.set_exception(EngineDeadError(problem))
        self._streams.clear()
        self._names.clear()

    def _forget(self, name: str) -> None:
        stream = self._streams.pop(name, None)
        if stream is not None and self._names.get(stream.request_id) == name:
            del self._names[stream.request_id]

    def _take(self, report: Report) -> None:
        if isinstance(report, Outputs):
            for one in report.outputs:
                self._take_output(one)
        elif isinstance(report, Answer):
            self._take_answer(report)

    def _take_output(self, output: News | Pooled | Refused) -> None:
        stream = self._streams.get(output.request_id)
        if stream is None:  # its reader has left
            return
        if isinstance(output, Refused):
            stream.fail(error_of(output.error, output.message))
        elif isinstance(output, News):
            assert isinstance(stream, CompletionStream)
            stream.take(output)
        else:
            assert isinstance(stream, PoolingStream)
            stream.take(output)
        if stream.ended:  # its id is free again, though its reader may not have read the end
            self._forget(output.request_id)

    def _take_answer(self, answer: Answer) -> None:
        future = self._answers.get(answer.number)
        if future is None or future.done():
            return
        if answer.error is not None:
            future.set_exception(error_of(answer.kind, answer.error))
        else:
            future.set_result(answer.value)
