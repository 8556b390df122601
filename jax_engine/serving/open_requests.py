"""The requests that wait for an engine's process: their streams of outputs, and questions to it.

An output of a request arrives with each step, whether somebody reads or not. What arrived since the
last reading is read as one output. So a slow reader delays nobody, and the stream holds only what
it has not read.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from jax_engine.engine.assembler import Assembler
from jax_engine.engine.engine_core_output import EngineCoreOutput
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.errors import EngineDeadError
from jax_engine.outputs import PoolingOutput, PoolingRequestOutput, RequestOutput
from jax_engine.serving.engine_client import EngineClient, error_of
from jax_engine.serving.messages import (
    Abort,
    Add,
    Answer,
    Ask,
    AskLoRA,
    CancelPause,
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


class Stream[Output]:
    """Outputs of a request for one reader.

    Attributes:
        request_id: the client's name of the request.
        ended: whether the last output, or an error, has arrived.
    """

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.ended = False
        self._arrived = asyncio.Event()
        self._error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Ends the stream with an error."""
        self._error, self.ended = error, True
        self._arrived.set()

    async def next(self) -> Output | None:
        """The next output; None behind the last one. Raises the error that ended the stream."""
        while True:
            if not self.ended:
                await self._arrived.wait()
            self._arrived.clear()
            if self._error is not None:
                raise self._error
            output = self.read()
            if output is not None or self.ended:
                return output

    def read(self) -> Output | None:
        """What has arrived since the last reading, as one output; None if nothing has."""
        raise NotImplementedError


class PoolingStream(Stream[PoolingRequestOutput]):
    """The one output of a pooling request."""

    def __init__(self, request_id: str, prompt: Prompt) -> None:
        super().__init__(request_id)
        self._prompt = prompt
        self._output: PoolingRequestOutput | None = None

    def take(self, pooled: Pooled) -> None:
        """Takes the output."""
        data = np.frombuffer(pooled.data, pooled.dtype).reshape(pooled.shape)
        self._output = PoolingRequestOutput(
            self.request_id, PoolingOutput(data), self._prompt.token_ids, pooled.finished
        )
        self.ended = True
        self._arrived.set()

    def read(self) -> PoolingRequestOutput | None:
        """As `Stream.read`."""
        output, self._output = self._output, None
        return output


class CompletionStream(Stream[RequestOutput]):
    """Outputs of a request that generates.

    Args:
        assembler: makes them.
        interval: the reader's `EngineConfig.stream_interval`.
    """

    def __init__(self, assembler: Assembler, interval: int) -> None:
        super().__init__(assembler.request_id)
        self._assembler, self._interval = assembler, interval
        self._fresh = False

    def take(self, core_output: EngineCoreOutput) -> None:
        """Takes what a step gave."""
        self._assembler.take(core_output)
        self.ended = self.ended or core_output.finished
        if self.ended or self._assembler.is_due(self._interval):
            self._fresh = True
            self._arrived.set()

    def read(self) -> RequestOutput | None:
        """As `Stream.read`."""
        fresh, self._fresh = self._fresh, False
        return self._assembler.read() if fresh else None


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
        """Sends a request and yields its outputs. It is aborted when the reader stops."""
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
            Its number, by which `cancel_pause` ends it.
        """
        number = next(self._questions)
        try:
            await self._answer(number, Pause(number, mode, clear_cache))
        except asyncio.CancelledError:
            self.cancel_pause(number)
            raise
        return number

    def cancel_pause(self, number: int) -> None:
        """Ends one pause, or the wait for it."""
        with suppress(EngineDeadError):
            self._client.send(CancelPause(number))

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

    def _take_output(self, output: EngineCoreOutput | Pooled | Refused) -> None:
        stream = self._streams.get(output.request_id)
        if stream is None:  # its reader has left
            return
        if isinstance(output, Refused):
            stream.fail(error_of(output.error, output.message))
        elif isinstance(output, EngineCoreOutput):
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
