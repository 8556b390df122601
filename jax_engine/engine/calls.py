"""Calls of `LLM`: each adds its requests to the loop, from any thread, and waits for its own."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Thread, current_thread

from jax_engine.engine.batch import Progress, UseTqdm, progress_bar
from jax_engine.engine.engine_loop import EngineLoop, awaited
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.request import Request, RequestNews
from jax_engine.engine.thread_settings import check_jax_settings, jax_settings
from jax_engine.errors import JaxEngineError
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
        news = awaited(self._news)
        try:
            if isinstance(news, JaxEngineError):
                raise news
            request, new = news
            return request.output(new)
        finally:  # the error's traceback holds this frame, which must not hold the error
            del news

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
        thread = Thread(target=self._loop.run, name="jax-engine", daemon=True)
        thread.start()
        weakref.finalize(self, _end, self._loop, thread)
        # Only the engine's thread changes these, where no Ctrl-C can interrupt it.
        self._num_requests = 0
        self._enqueued: list[Call] = []

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
        with self._ending([call]):
            self._add(requests, call)
            return self._last_outputs([call], use_tqdm)

    def stream(self, request: Request) -> Iterator[AnyRequestOutput]:
        """Adds a request and yields its outputs; it ends when nobody reads any more."""
        call = Call()
        with self._ending([call]):
            self._add([request], call)
            while not (output := call.next()).finished:
                yield output
        yield output

    def enqueue(self, requests: Sequence[Request]) -> list[str]:
        """Adds all requests, or none, for `wait_enqueued`; returns their ids."""
        call = Call()
        with self._ending([call]):
            self._add(requests, call, enqueued=True)
        return call.request_ids

    def wait_enqueued(self, use_tqdm: UseTqdm) -> list[AnyRequestOutput]:
        """As `run`, for all requests since the last time."""
        calls: list[Call] = []

        def take() -> None:
            calls.extend(self._enqueued)
            self._enqueued.clear()

        with self._ending(calls):
            self._loop.call(take)
            return self._last_outputs(calls, use_tqdm)

    def _last_outputs(self, calls: Sequence[Call], use_tqdm: UseTqdm) -> list[AnyRequestOutput]:
        total = sum(len(call.request_ids) for call in calls)
        with progress_bar(total, use_tqdm) as show:
            return [output for call in calls for output in call.last_outputs(show)]

    def _add(self, requests: Sequence[Request], call: Call, *, enqueued: bool = False) -> None:
        """Names the requests and accepts them, between two steps."""
        settings = jax_settings()

        def add() -> None:
            check_jax_settings(settings)
            engine, first = self._loop.engine, self._num_requests
            names = [str(first + i) for i in range(len(requests))]
            while any(engine.is_running(one) for one in names):
                first += 1  # a caller of `LLMEngine.add_request` has taken one
                names = [str(first + i) for i in range(len(requests))]
            for request, name in zip(requests, names, strict=True):
                request.group.request_id = name
            self._loop.add(requests, call)
            call.request_ids = names
            self._num_requests = first + len(names)
            if enqueued:
                self._enqueued.append(call)

        self._loop.call(add)

    @contextmanager
    def _ending(self, calls: Sequence[Call]) -> Iterator[None]:
        """Ends the calls' requests if anything is raised, Ctrl-C for one, and waits for that.

        A second Ctrl-C ends the waiting.
        """
        try:
            yield
        except BaseException:
            self._loop.post(lambda: self._leave(calls))  # behind what was asked for and interrupted
            with suppress(JaxEngineError):  # it has ended; or this is its own thread
                self._loop.call(lambda: None)
            raise

    def _leave(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self._loop.leave(call)
        self._enqueued = [one for one in self._enqueued if one not in calls]


def _end(loop: EngineLoop, thread: Thread) -> None:
    """Ends the loop, and waits for the step that runs."""
    loop.stop()
    if current_thread() is not thread:
        thread.join()
