"""Calls of `LLM`: each adds its requests to the loops, from any thread, and waits for its own.

Each engine has a loop on a thread. The first one's thread also names requests, and says which
engine takes them.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread, current_thread

from jax_engine.engine.batch import Progress, UseTqdm, progress_bar
from jax_engine.engine.data_parallel import Routes
from jax_engine.engine.engine_loop import EngineLoop, awaited
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.request import Request, RequestNews, is_last
from jax_engine.engine.thread_settings import check_jax_settings, jax_settings
from jax_engine.errors import EngineDeadError, JaxEngineError
from jax_engine.outputs import AnyRequestOutput


class Call:
    """The requests of one call, and what has come of them. One thread waits for it.

    Args:
        routes: Gets to know which requests have ended; None: there is one engine.

    Attributes:
        request_ids: In the order of the prompts.
    """

    def __init__(self, routes: Routes | None = None) -> None:
        self.request_ids: list[str] = []
        self._routes = routes
        self._news: SimpleQueue[RequestNews | JaxEngineError] = SimpleQueue()

    def take(self, updates: list[RequestNews]) -> None:
        """As `Reader.take`."""
        if self._routes is not None:
            self._routes.end([request.request_id for request, news in updates if is_last(news)])
        for update in updates:
            self._news.put(update)

    def fail(self, request_ids: list[str], error: JaxEngineError) -> None:
        """As `Reader.fail`."""
        if self._routes is not None:
            self._routes.end(request_ids)
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
    """Engines' loops, each on a thread of its own; they end with this object, or with Python.

    Args:
        engines: They are alike.
    """

    def __init__(self, *engines: LLMEngine) -> None:
        self._loops = [EngineLoop(one) for one in engines]
        self._routes = Routes(engines) if len(engines) > 1 else None
        # Python cuts off daemon threads where they stand: inside a step, that aborts the process.
        # So they are ended before; they have no reference to this object, which could not go else.
        threads = [Thread(target=one.run, name="jax-engine", daemon=True) for one in self._loops]
        for thread in threads:
            thread.start()
        weakref.finalize(self, _end, self._loops, threads)
        # Only the first loop's thread changes these, where no Ctrl-C can interrupt it.
        self._num_requests = 0
        self._enqueued: list[Call] = []

    def of_each[T](self, work: Callable[[LLMEngine], T]) -> list[T]:
        """Lets each engine's thread do this between two steps; returns what they return.

        Raises:
            BaseException: What one of them raises; engines behind it have not done it.
        """
        return [loop.call(partial(work, loop.engine)) for loop in self._loops]

    def reset_prefix_caches(self, reset: Callable[[LLMEngine], bool]) -> bool:
        """Whether each engine has emptied its prefix cache."""
        emptied = self.of_each(reset)
        if self._routes is not None:
            self._loops[0].call(self._routes.forget_prefixes)
        return all(emptied)

    def run(self, requests: Sequence[Request], use_tqdm: UseTqdm) -> list[AnyRequestOutput]:
        """Adds all requests, or none, and waits for them; returns their outputs in this order.

        Whatever interrupts it ends them; other calls go on.

        Raises:
            ConfigError: The thread has settings of JAX that the engine's thread has not.
            StepFailedError: A step failed.
        """
        call = Call(self._routes)
        with self._ending([call]):
            self._add(requests, call)
            return self._last_outputs([call], use_tqdm)

    def stream(self, request: Request) -> Iterator[AnyRequestOutput]:
        """Adds a request and yields its outputs; it ends when nobody reads any more."""
        call = Call(self._routes)
        with self._ending([call]):
            self._add([request], call)
            while not (output := call.next()).finished:
                yield output
        yield output

    def enqueue(self, requests: Sequence[Request]) -> list[str]:
        """Adds all requests, or none, for `wait_enqueued`; returns their ids."""
        call = Call(self._routes)
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
            self._loops[0].call(take)
            return self._last_outputs(calls, use_tqdm)

    def _last_outputs(self, calls: Sequence[Call], use_tqdm: UseTqdm) -> list[AnyRequestOutput]:
        total = sum(len(call.request_ids) for call in calls)
        with progress_bar(total, use_tqdm) as show:
            return [output for call in calls for output in call.last_outputs(show)]

    def _add(self, requests: Sequence[Request], call: Call, *, enqueued: bool = False) -> None:
        """Names the requests and accepts them, between two steps.

        If one of several engines does not accept its part, the caller ends those of the others.
        """
        self._check_engines()
        settings, first_loop = jax_settings(), self._loops[0]
        parts: list[list[Request]] = [[] for _ in self._loops]

        def add() -> None:
            check_jax_settings(settings)
            engine, first = first_loop.engine, self._num_requests
            names = [str(first + i) for i in range(len(requests))]
            while any(engine.is_running(one) for one in names):
                first += 1  # a caller of `LLMEngine.add_request` has taken one
                names = [str(first + i) for i in range(len(requests))]
            for request, name in zip(requests, names, strict=True):
                request.group.request_id = name
            self._share_out(requests, first, parts)
            try:
                first_loop.add(parts[0], call)
            except BaseException:
                if self._routes is not None:  # the names are given out again
                    self._routes.end(names)
                raise
            call.request_ids = names
            self._num_requests = first + len(names)
            if enqueued:
                self._enqueued.append(call)

        first_loop.call(add)
        for loop, part in zip(self._loops[1:], parts[1:], strict=True):
            if part:
                loop.call(partial(loop.add, part, call))

    def _share_out(
        self, requests: Sequence[Request], first: int, parts: list[list[Request]]
    ) -> None:
        """Appends each request to the part of its engine. Seeds are those of a single engine."""
        if self._routes is None:
            parts[0] += requests
            return
        for i, (number, request) in enumerate(
            zip(self._routes.choose(requests), requests, strict=True)
        ):
            request.order = first + i
            parts[number].append(request)

    def _check_engines(self) -> None:
        """
        Raises:
            EngineDeadError: One of several engines has ended.
        """
        for number, loop in enumerate(self._loops):
            problem = loop.died or loop.engine.problem()
            if problem is not None and len(self._loops) > 1:
                raise EngineDeadError(f"engine {number}: {problem}")

    @contextmanager
    def _ending(self, calls: Sequence[Call]) -> Iterator[None]:
        """Ends the calls' requests if anything is raised, Ctrl-C for one, and waits for that.

        A second Ctrl-C ends the waiting.
        """
        try:
            yield
        except BaseException:
            for loop in self._loops:  # behind what was asked for and interrupted
                loop.post(partial(self._leave, loop, calls))
            for loop in self._loops:
                with suppress(JaxEngineError):  # it has ended; or this is its own thread
                    loop.call(lambda: None)
            raise

    def _leave(self, loop: EngineLoop, calls: Sequence[Call]) -> None:
        for call in calls:
            loop.leave(call)
            if self._routes is not None:  # some may have come to no engine
                self._routes.end(call.request_ids)
        if loop is self._loops[0]:
            self._enqueued = [one for one in self._enqueued if one not in calls]


def _end(loops: Sequence[EngineLoop], threads: Sequence[Thread]) -> None:
    """Ends the loops, and waits for the steps that run."""
    for loop in loops:
        loop.stop()
    for thread in threads:
        if current_thread() is not thread:
            thread.join()
