"""Calls of `LLM`: each adds its requests to the loop, from any thread, and waits for its own."""

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue

from jax_engine.engine.batch import Progress, UseTqdm, progress_bar
from jax_engine.engine.engine_loop import EngineLoop
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.request import Request, RequestNews
from jax_engine.engine.thread_settings import check_jax_settings, jax_settings
from jax_engine.errors import EngineDeadError, JaxEngineError
from jax_engine.outputs import AnyRequestOutput


class Call:
    """The requests of one call, and what has come of them. One thread waits for it.

    Attributes:
        request_ids: In the order of the prompts.
    """

    def __init__(self) -> None:
        self.request_ids: list[str] = []
        self._news: SimpleQueue[RequestNews | JaxEngineError] = SimpleQueue()

    def take(self, updates: list[RequestNews]) -> None:
        """As `Reader.take`."""
        for update in updates:
            self._news.put(update)

    def fail(self, request_ids: list[str], error: JaxEngineError) -> None:
        """As `Reader.fail`."""
        self._news.put(error)

    def next(self) -> AnyRequestOutput:
        """Waits for the next output. Raises what ended the requests without one."""
        news = self._news.get()
        if isinstance(news, JaxEngineError):
            raise news
        request, new = news
        return request.output(new)

    def last_outputs(self, show: Progress) -> list[AnyRequestOutput]:
        """Waits for the one output of each request; returns them in the order of the prompts."""
        found: dict[str, AnyRequestOutput] = {}
        while len(found) < len(self.request_ids):
            output = self.next()
            found[output.request_id] = output
            show(output)
        return [found[request_id] for request_id in self.request_ids]


class Calls:
    """An engine's loop on a thread of its own, which ends with this object, or with Python."""

    def __init__(self, engine: LLMEngine) -> None:
        self._loop = EngineLoop(engine)
        # Python cuts off daemon threads where they stand: inside a step, that aborts the process.
        # So it is ended before; it has no reference to this object, which could not go else.
        thread = threading.Thread(target=self._loop.run, name="jax-engine", daemon=True)
        thread.start()
        weakref.finalize(self, _end, self._loop, thread)
        self._num_requests = 0
        self._enqueued = Call()

    def between_steps[T](self, work: Callable[[], T]) -> T:
        """Lets the engine's thread do this; returns what it returns, or raises."""
        return self._loop.call(work)

    def run(self, requests: Sequence[Request], use_tqdm: UseTqdm) -> list[AnyRequestOutput]:
        """Adds all requests, or none, and waits for them; returns their outputs in this order.

        Whatever interrupts it ends them; other calls go on.

        Raises:
            ConfigError: The thread has settings of JAX that the engine's thread has not.
            StepFailedError: A step failed.
        """
        call = Call()
        with self._ending(call):
            self._add(requests, lambda: call)
            return self._last_outputs(call, use_tqdm)

    def stream(self, request: Request) -> Iterator[AnyRequestOutput]:
        """Adds a request and yields its outputs; it ends when nobody reads any more."""
        call = Call()
        with self._ending(call):
            self._add([request], lambda: call)
            while not (output := call.next()).finished:
                yield output
        yield output

    def enqueue(self, requests: Sequence[Request]) -> list[str]:
        """Adds all requests, or none, for `wait_enqueued`; returns their ids."""
        return self._add(requests, lambda: self._enqueued)

    def wait_enqueued(self, use_tqdm: UseTqdm) -> list[AnyRequestOutput]:
        """As `run`, for all requests since the last time."""

        def taken() -> Call:
            call, self._enqueued = self._enqueued, Call()
            return call

        call = self._loop.call(taken)
        with self._ending(call):
            return self._last_outputs(call, use_tqdm)

    def _last_outputs(self, call: Call, use_tqdm: UseTqdm) -> list[AnyRequestOutput]:
        with progress_bar(len(call.request_ids), use_tqdm) as show:
            return call.last_outputs(show)

    def _add(self, requests: Sequence[Request], call_of: Callable[[], Call]) -> list[str]:
        """Names the requests and accepts them, between two steps."""
        settings = jax_settings()

        def add() -> list[str]:
            check_jax_settings(settings)
            engine, first = self._loop.engine, self._num_requests
            names = [str(first + i) for i in range(len(requests))]
            while any(engine.is_running(one) for one in names):
                first += 1  # a caller of `LLMEngine.add_request` has taken one
                names = [str(first + i) for i in range(len(requests))]
            for request, name in zip(requests, names, strict=True):
                request.group.request_id = name
            call = call_of()
            self._loop.add(requests, call)
            call.request_ids += names
            self._num_requests = first + len(names)
            return names

        return self._loop.call(add)

    @contextmanager
    def _ending(self, call: Call) -> Iterator[None]:
        """Ends a call's requests if anything is raised, Ctrl-C for one, and waits for that.

        A second Ctrl-C ends the waiting.
        """
        try:
            yield
        except BaseException:
            with suppress(EngineDeadError):
                self._loop.call(lambda: self._loop.leave(call))
            raise


def _end(loop: EngineLoop, thread: threading.Thread) -> None:
    """Ends the loop, and waits for the step that runs."""
    loop.stop()
    if threading.current_thread() is not thread:
        thread.join()
