"""The loop that owns an engine: one thread takes jobs between two steps, and runs the steps.

`LLM` is a client in the same process (`calls`), `AsyncLLM` one behind a socket
(`jax_engine.serving.engine_server`).
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import get_ident
from typing import Any, Protocol

from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.requests.request import Request, RequestUpdate, is_last
from jax_engine.errors import EngineDeadError, EngineInUseError, JaxEngineError, StepFailedError

SIGNALS_S = 0.2  # how late a signal may be that comes just before a wait begins


def awaited[T](queue: SimpleQueue[T]) -> T:
    """What comes next, in a thread that signals may interrupt.

    Python looks for signals before it waits and when it has waited: one in between would be seen
    when something comes, which may be minutes later.
    """
    while True:
        with suppress(Empty):
            return queue.get(timeout=SIGNALS_S)


class Reader(Protocol):
    """Who gets what becomes of requests. The loop's thread calls it, between two steps."""

    def take(self, updates: list[RequestUpdate]) -> None:
        """Takes what a step gave, or an abort: what is new in the reader's requests."""

    def fail(self, request_ids: list[str], error: JaxEngineError) -> None:
        """A step failed, and these requests of the reader's were aborted."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a job has returned, or raised."""

    result: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    """Something to do between two steps; who waits for it reads its answer.

    A `Future` would hold a lock: Ctrl-C in who waits may leave that locked, and the loop with it.
    """

    work: Callable[[], Any]
    answer: SimpleQueue[_Answer] | None

    def do(self) -> None:
        """Does it. A job that nobody waits for must not raise."""
        work, answer = self.work, self.answer
        if answer is None:
            work()
            return
        try:
            answer.put(_Answer(work()))
        except BaseException as error:
            answer.put(_Answer(error=error))
        finally:  # an error's traceback holds this frame, which must not hold the error
            del self, work, answer


class EngineLoop:
    """One thread calls `run`: while requests run, it alone uses the engine.

    Any thread, and a signal's handler, may call `post`, `call` and `stop`. The other methods are
    for jobs, which the loop's thread does.

    Attributes:
        paused: Set by a job: no steps run until it is unset.
        step_started: When the current step began (`time.monotonic`); None between steps.
        died: Why the process of the runner has ended, and the loop with it; None: it has not.
    """

    def __init__(self, engine: LLMEngine) -> None:
        self.engine = engine
        self.paused = False
        self.step_started: float | None = None
        self.died: str | None = None
        # SimpleQueue: a signal's handler may call put(), even in the middle of a put().
        self._inbox: SimpleQueue[_Job] = SimpleQueue()
        self._jobs: deque[_Job] = deque()
        self._readers: dict[str, Reader] = {}
        self._thread: int | None = None
        self._stopped = False
        self._end: str | None = None

    def post(self, work: Callable[[], None]) -> None:
        """Does this between two steps. It must not raise."""
        self._put(_Job(work, None))

    def call[T](self, work: Callable[[], T]) -> T:
        """Does this between two steps; returns what it returns.

        Raises:
            EngineInUseError: The loop's own thread asks, and would wait for itself.
            EngineDeadError: The loop has ended.
            BaseException: What `work` raises.
        """
        self.engine.check_process()
        if get_ident() == self._thread:
            raise EngineInUseError(
                "LLM was called by the thread that runs the engine, which would wait for itself: a "
                "logits processor may use `llm.llm_engine`, and no method of LLM that waits"
            )
        letters: SimpleQueue[_Answer] = SimpleQueue()
        self._put(_Job(work, letters))
        answer = awaited(letters)
        try:
            if answer.error is not None:
                raise answer.error
            result: T = answer.result
            return result
        finally:  # as above
            del answer

    def stop(self) -> None:
        """Ends the loop behind the step that runs; requests that still run are lost."""

        def end() -> None:
            self._stopped = True  # so `run` ends, and tells the readers
            self.engine.abort_request(list(self._readers))

        self.post(end)

    def die(self, problem: str) -> None:
        """Ends the loop, whose engine can run no more steps. For the loop's thread, or a job."""
        self.died, self._stopped = problem, True

    def add(self, requests: Sequence[Request], reader: Reader) -> None:
        """Accepts all requests, or none if anything is raised.

        Raises:
            InvalidRequestError: An id is already running.
        """
        self.engine.add_all(requests)
        self._readers |= {one.request_id: reader for one in requests}
        self._note_driver()

    def abort(self, request_ids: Iterable[str]) -> None:
        """Ends requests, whose readers get what there is; ids that are not running are ignored."""
        self._deliver(self.engine.abort_updates(request_ids))

    def leave(self, reader: Reader) -> None:
        """Ends all requests of a reader."""
        self.abort([request_id for request_id, one in self._readers.items() if one is reader])

    @property
    def is_busy(self) -> bool:
        """Whether requests run that somebody reads."""
        return bool(self._readers)

    def run(self) -> None:
        """Runs until `stop`, or until the process of the engine's runner has ended.

        If it raises, which is a bug, all who wait are told.
        """
        self._thread = get_ident()
        problem = "the engine's loop failed, which is a bug: report it"
        try:
            while not self._stopped:
                self.turn()
            problem = self.died or "the engine was shut down"
        finally:
            self._end, self._thread = problem, None
            self._fail(EngineDeadError(problem))
            self._refuse_jobs(problem)

    def turn(self) -> None:
        """Does the jobs that have come, or waits for one; then runs a step if requests run.

        Others may use the engine while it waits without requests, and between two jobs.
        """
        if self.paused or not self.is_busy:
            self._await_job()
        while not self._stopped and (self._jobs or not self._inbox.empty()):
            self._await_job()
            with self.engine.driven():
                self._jobs.popleft().do()
        if self.is_busy and not self.paused and not self._stopped:
            self._step()

    def _await_job(self) -> None:
        """Waits until there is a job, which no local name keeps alive: it may hold an `LLM`."""
        if not self._jobs:
            self._jobs.append(self._inbox.get())

    def _step(self) -> None:
        """Runs a step outside of `driven`: while it runs, others are refused and need not wait."""
        self.step_started = time.monotonic()
        try:
            self.engine.run_step()
        except BaseException as error:  # such as one that a logits processor raised
            with self.engine.driven():
                self._tell_failed(error)
            if isinstance(error, EngineDeadError):
                self.die(str(error))
        else:
            with self.engine.driven():
                self._deliver(self.engine.take_updates())
                self._tell_missed()
        finally:
            self.step_started = None

    def _tell_failed(self, error: BaseException) -> None:
        self._deliver(self.engine.take_updates())  # of those who had ended before
        for update in self.engine.take_lost():
            if update[0].request_id not in self._readers:
                self.engine.keep(update)
        self._fail(error)

    def _tell_missed(self) -> None:
        """Looks for a request that a job or a logits processor has aborted without the loop.

        Only at the first: each one comes to be the first, and then its reader waits no more.
        """
        first = next(iter(self._readers), None)
        if first is not None and not self.engine.is_running(first):
            error = StepFailedError(
                f"request {first} was aborted through llm_engine while a call of LLM waited for it"
            )
            reader = self._readers.pop(first)
            self._note_driver()
            reader.fail([first], error)

    def _fail(self, error: BaseException) -> None:
        """Tells all readers: the engine has aborted everything, and goes on with new requests."""
        failed: dict[Reader, list[str]] = {}
        for request_id, reader in self._readers.items():
            failed.setdefault(reader, []).append(request_id)
        self._readers.clear()
        self._note_driver()
        for reader, request_ids in failed.items():
            reader.fail(request_ids, _failure(error))

    def _deliver(self, updates: list[RequestUpdate]) -> None:
        """Hands updates to their readers; those without one are for `LLMEngine.step`."""
        found: dict[Reader, list[RequestUpdate]] = {}
        for update in updates:
            request, output = update
            reader = self._readers.get(request.request_id)
            if reader is None:
                self.engine.keep(update)
                continue
            found.setdefault(reader, []).append(update)
            if is_last(output):
                del self._readers[request.request_id]
        self._note_driver()
        for reader, its in found.items():
            reader.take(its)

    def _note_driver(self) -> None:
        """Before a reader gets the last output: then it may use the engine, but for a moment."""
        self.engine.driver = get_ident() if self._readers else None

    def _put(self, job: _Job) -> None:
        self._inbox.put(job)
        if self._end is not None:
            self._refuse_jobs(self._end)

    def _refuse_jobs(self, problem: str) -> None:
        """Any thread may do this, or several at once, since nobody takes jobs any more."""
        with suppress(Empty):
            while True:
                job = self._inbox.get_nowait()
                if job.answer is not None:
                    job.answer.put(_Answer(error=EngineDeadError(problem)))


def _failure(error: BaseException) -> JaxEngineError:
    """What a step raised, in words; an error of ours keeps its type."""
    if isinstance(error, JaxEngineError):
        failure: JaxEngineError = type(error)(*error.args)
        failure.__cause__ = error.__cause__
        return failure
    failure = StepFailedError(
        f"a step failed, and its requests were aborted: {error!r}. The engine goes on with new ones"
    )
    failure.__cause__ = error
    return failure
