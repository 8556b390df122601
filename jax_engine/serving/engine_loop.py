"""The loop of the engine's process, without sockets: commands in, reports out."""

import logging
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.pieces import News
from jax_engine.engine.request import Request, RequestNews
from jax_engine.errors import JaxEngineError, StepFailedError
from jax_engine.serving.messages import (
    Abort,
    Add,
    Answer,
    Ask,
    Outputs,
    Question,
    Refused,
    Report,
    Stop,
)
from jax_engine.serving.reports import messages_of
from jax_engine.serving.wire_params import read_params

logger = logging.getLogger("jax_engine")

type Command = Add | Abort | Ask | Stop
type Item = Request | Refused | Abort | Ask | Stop


class EngineLoop:
    """Accepts requests, runs steps while there are some, and reports what they give.

    One thread calls `run`. Any one other thread calls `receive`.

    Args:
        send: takes each report; only the thread of `run` calls it.

    Attributes:
        step_started: when the current step began; None between steps.
    """

    def __init__(self, engine: LLMEngine, send: Callable[[Report], None]) -> None:
        self.step_started: float | None = None
        self._engine = engine
        self._send = send
        self._inbox: SimpleQueue[Item] = SimpleQueue()
        self._running: set[str] = set()  # ids of requests
        self._stopped = False

    def receive(self, command: Command) -> None:
        """Takes a command. A request is checked here, beside the steps that run meanwhile."""
        self._inbox.put(self._checked(command) if isinstance(command, Add) else command)

    def _checked(self, add: Add) -> Request | Refused:
        try:
            params = read_params(dict(add.params), pooling=add.pooling, streams=add.streams)
            prompt = {"prompt_token_ids": add.token_ids, "cache_salt": add.cache_salt}
            request = self._engine.check_request(prompt, params, add.request_id)
            request.serve_as(
                add.request_id,
                arrival_time=add.arrival_time,
                priority=add.priority,
                timeout=add.timeout,
            )
        except Exception as error:  # a request never ends the process
            return _refused(add.request_id, error)
        return request

    def run(self) -> None:
        """Runs until `Stop` is received."""
        while self.turn():
            pass

    def turn(self) -> bool:
        """Takes the commands that have arrived, or waits for one; then runs a step.

        Returns:
            False once `Stop` was received.
        """
        self._take_commands()
        if self._engine.has_unfinished_requests() and not self._stopped:
            self._step()
        return not self._stopped

    def _take_commands(self) -> None:
        """Takes what was received; waits for something where there is nothing to run."""
        wait = not self._engine.has_unfinished_requests()
        while (wait or not self._inbox.empty()) and not self._stopped:
            wait = False
            self._take(self._inbox.get())

    def _take(self, item: Item) -> None:
        match item:
            case Request():
                self._accept(item)
            case Refused():
                self._send(Outputs([item]))
            case Abort():
                self._report(self._engine.abort_news(item.request_ids))
            case Ask():
                self._send(self._answer(item))
            case Stop():
                self._stopped = True

    def _accept(self, request: Request) -> None:
        request_id = request.request_id
        try:
            self._engine.add_all([request])
        except Exception as error:
            self._send(Outputs([_refused(request_id, error)]))
        else:
            self._running.add(request_id)

    def _step(self) -> None:
        self.step_started = time.monotonic()
        try:
            updates = self._engine.step_news()
        except Exception as error:
            self._fail_all(error)
        else:
            self._report(updates)
        finally:
            self.step_started = None

    def _fail_all(self, error: Exception) -> None:
        """The engine has aborted everything; it goes on with new requests."""
        logger.exception("a step failed; its %d requests are aborted", len(self._running))
        failure = StepFailedError(
            f"a step failed, and its requests were aborted: {error!r}. The engine goes on with "
            "new ones"
        )
        self._send(Outputs([_refused(request_id, failure) for request_id in self._running]))
        self._running.clear()

    def _report(self, updates: list[RequestNews]) -> None:
        found = messages_of(updates)
        for one in found:
            if not isinstance(one, News) or one.finished:
                self._running.discard(one.request_id)
        if found:
            self._send(Outputs([*found]))

    def _answer(self, ask: Ask) -> Answer:
        answers: Mapping[Question, Callable[[], Any]] = {
            "stats": self._engine.stats,
            "state": self._engine.state,
            "metrics": lambda: [
                {"kind": type(one).__name__, **vars(one)} for one in self._engine.get_metrics()
            ],
            "reset_prefix_cache": self._engine.reset_prefix_cache,
        }
        try:
            return Answer(ask.number, answers[ask.question]())
        except Exception as error:
            return Answer(ask.number, error=f"{type(error).__name__}: {error}")


def _refused(request_id: str, error: Exception) -> Refused:
    if not isinstance(error, JaxEngineError):
        logger.error("request %s failed", request_id, exc_info=error)
    return Refused(request_id, type(error).__name__, str(error))
