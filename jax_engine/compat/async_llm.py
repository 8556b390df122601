"""`AsyncLLM`: one engine for many coroutines, stepped by a thread of its own.

The thread alone touches the engine. Coroutines hand it jobs (add, abort, pause) by a queue, and get
outputs through a queue of their own.
"""

import asyncio
import atexit
import queue
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from jax_engine.config import EngineConfig
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.prompts import PromptInput
from jax_engine.engine.request_checks import own_params
from jax_engine.errors import InvalidRequestError
from jax_engine.outputs import AnyRequestOutput, PoolingRequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import SamplingParams

PauseMode = Literal["abort", "wait", "keep"]


@dataclass(eq=False)
class _Listener:
    """Where the outputs of one request go: a coroutine's queue, in its event loop."""

    loop: asyncio.AbstractEventLoop
    outputs: asyncio.Queue[AnyRequestOutput | BaseException | None]

    def send(self, item: AnyRequestOutput | BaseException | None) -> None:
        """An output, or an error, or None after the last one. From any thread."""
        with suppress(RuntimeError):  # its loop is closed: nobody listens any more
            self.loop.call_soon_threadsafe(self.outputs.put_nowait, item)


class AsyncLLM:
    """An engine whose requests are coroutines.

    Attributes:
        llm_engine: Stepped by a thread of its own until `shutdown`.
    """

    def __init__(self, engine: LLMEngine) -> None:
        self.llm_engine = engine
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._listeners: dict[str, _Listener] = {}
        self._late: dict[_Listener, Callable[[], None]] = {}  # what accepts who came in a drain
        self._draining = self._paused = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="AsyncLLM", daemon=True)
        self._thread.start()
        # Python cuts off daemon threads where they stand: inside a step, that aborts the process
        atexit.register(self.shutdown)

    @classmethod
    def from_engine_args(cls, engine_args: Any, **_: Any) -> "AsyncLLM":
        """Builds the engine: what `LLMEngine.from_engine_args` does, and raises."""
        return cls.from_config(engine_args.create_engine_config())

    @classmethod
    def from_config(cls, config: EngineConfig) -> "AsyncLLM":
        return cls(LLMEngine.from_config(config))

    def generate(
        self,
        prompt: PromptInput,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        priority: int = 0,
    ) -> AsyncGenerator[Any, None]:
        """The outputs of a request as they come (`RequestOutputKind` says which).

        A coroutine that stops listening, or is cancelled, aborts the request.

        Raises:
            InvalidRequestError: Something is wrong with the prompt or the params.
            RuntimeError: The engine was shut down.
        """
        return self._outputs(prompt, own_params(sampling_params), request_id, priority)

    def encode(
        self,
        prompt: PromptInput,
        pooling_params: PoolingParams,
        request_id: str,
        *,
        priority: int = 0,
    ) -> AsyncGenerator[Any, None]:
        """As `generate`; there is one output."""
        return self._outputs(prompt, own_params(pooling_params), request_id, priority)

    async def abort(self, request_id: str) -> None:
        """Ends a request: its coroutine gets what there is, with finish_reason "abort"."""
        await self._in_thread(lambda: self._abort([request_id]))

    async def pause_generation(
        self, *, mode: PauseMode = "abort", clear_cache: bool = True, **_: Any
    ) -> None:
        """Stops stepping; new requests wait.

        Args:
            mode: What becomes of running requests: "abort" them, "wait" until they have finished,
                "keep" them as they are until `resume_generation`.
            clear_cache: Forget the prefix cache, but with "keep".
        """
        if mode not in ("abort", "wait", "keep"):
            raise InvalidRequestError(f"mode must be 'abort', 'wait' or 'keep', got {mode!r}")
        if mode == "wait":
            await self._drained()
        aborts, clears = mode == "abort", clear_cache and mode != "keep"
        await self._in_thread(lambda: self._pause(aborts=aborts, clears=clears))

    async def _drained(self) -> None:
        """Waits for the requests that run. Who comes meanwhile is accepted behind the pause: else
        it might never come."""

        def begin() -> None:
            self._draining = True

        try:
            await self._in_thread(begin)
            while await self._in_thread(self.llm_engine.has_unfinished_requests):
                await asyncio.sleep(0.01)
        except BaseException:
            self._jobs.put(self._accept_late)
            raise

    async def resume_generation(self) -> None:
        """Goes on after `pause_generation`."""

        def resume() -> None:
            self._paused = False

        await self._in_thread(resume)

    async def is_paused(self) -> bool:
        return self._paused

    async def reset_prefix_cache(self) -> bool:
        """As `LLMEngine.reset_prefix_cache`."""
        done: bool = await self._in_thread(self.llm_engine.reset_prefix_cache)
        return done

    async def get_tokenizer(self) -> Any:
        return self.llm_engine.get_tokenizer()

    def shutdown(self) -> None:
        """Ends the thread; coroutines that still listen get an error. Once is enough."""
        if self._error is None:
            self._error = RuntimeError("the engine was shut down")
        self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        atexit.unregister(self.shutdown)

    async def _outputs(
        self, prompt: PromptInput, params: Any, request_id: str, priority: int
    ) -> AsyncGenerator[AnyRequestOutput, None]:
        listener = _Listener(asyncio.get_running_loop(), asyncio.Queue())

        def accept() -> None:
            self.llm_engine.add_request(request_id, prompt, params, priority=priority)
            self._listeners[request_id] = listener

        def add() -> None:
            if self._draining:
                self._late[listener] = accept
            else:
                accept()

        def forget() -> None:
            self._late.pop(listener, None)
            if self._listeners.get(request_id) is listener:  # else it has ended, or never began
                self._abort([request_id])

        try:
            await self._in_thread(add)
            while (item := await listener.outputs.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._jobs.put(forget)

    async def _in_thread(self, job: Callable[[], Any]) -> Any:
        """Runs a job between two steps; its result, or what it raised."""
        if self._error is not None:
            raise self._error
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():  # whoever asked has left
                return
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

        self._jobs.put(run)
        return await asyncio.wrap_future(future)

    def _pause(self, *, aborts: bool, clears: bool) -> None:
        if aborts:
            self._abort(list(self._listeners))
        self._paused = True
        if clears:
            self.llm_engine.reset_prefix_cache()
        self._accept_late()

    def _accept_late(self) -> None:
        """Accepts who came while others were waited for."""
        self._draining, late, self._late = False, self._late, {}
        for listener, accept in late.items():
            try:
                accept()
            except Exception as error:
                listener.send(error)

    def _loop(self) -> None:
        """The thread: jobs first; then a step, or waiting for the next job."""
        engine = self.llm_engine
        while True:
            busy = engine.has_unfinished_requests() and not self._paused
            while not (busy and self._jobs.empty()):
                job = self._jobs.get()
                if job is None:
                    assert self._error is not None
                    self._end(self._error)
                    return
                job()
                busy = engine.has_unfinished_requests() and not self._paused
            try:
                self._send(engine.step())
            except BaseException as error:  # the engine has aborted all of them, and can go on
                self._fail(error)

    def _send(self, outputs: list[AnyRequestOutput], *, ended: bool = False) -> None:
        for output in outputs:
            listener = self._listeners.get(output.request_id)
            if listener is None:
                continue
            listener.send(output)
            # The one output of a pooling request is its last, even if it was cut short.
            if ended or output.finished or isinstance(output, PoolingRequestOutput):
                listener.send(None)
                del self._listeners[output.request_id]

    def _abort(self, request_ids: list[str]) -> None:
        self._send(self.llm_engine.abort_request(request_ids), ended=True)
        self._send(self.llm_engine.outputs())

    def _fail(self, error: BaseException) -> None:
        for listener in self._listeners.values():
            listener.send(error)
        self._listeners.clear()

    def _end(self, error: BaseException) -> None:
        for listener in self._late:
            listener.send(error)
        self._fail(error)


AsyncLLMEngine = AsyncLLM  # the older name
