"""The loop of the engine's process, without sockets: commands in, reports out."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from typing import Any

from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.request import Request
from jax_engine.errors import JaxEngineError, StepFailedError
from jax_engine.logprobs import FlatLogprobs
from jax_engine.outputs import AnyRequestOutput, CompletionOutput, PoolingRequestOutput
from jax_engine.serving.messages import (
    Abort,
    Add,
    Answer,
    Ask,
    News,
    Outputs,
    Piece,
    Pooled,
    Question,
    Refused,
    Report,
    Stop,
)
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
        self._running: dict[str, bool] = {}  # request id: whether its text is made here
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
                aborted = self._engine.abort_request(item.request_ids)
                self._report([*aborted, *self._engine.outputs()])
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
            self._running[request_id] = request.params.detokenize

    def _step(self) -> None:
        self.step_started = time.monotonic()
        try:
            outputs = self._engine.step()
        except Exception as error:
            self._fail_all(error)
        else:
            self._report(outputs)
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

    def _report(self, outputs: Iterable[AnyRequestOutput]) -> None:
        found: list[News | Pooled | Refused] = []
        for output in outputs:
            has_text = self._running.get(output.request_id, False)
            ended = isinstance(output, PoolingRequestOutput) or output.finished
            if ended:
                self._running.pop(output.request_id, None)
            found.append(report_of(output, has_text=has_text))
        if found:
            self._send(Outputs(found))

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


def report_of(output: AnyRequestOutput, *, has_text: bool) -> News | Pooled:
    """An output as a message.

    Args:
        has_text: whether the engine made its text.
    """
    if isinstance(output, PoolingRequestOutput):
        data = output.outputs.data
        return Pooled(
            output.request_id, data.tobytes(), list(data.shape), data.dtype.name, output.finished
        )
    logprobs, times = output.prompt_logprobs, output.metrics
    return News(
        output.request_id,
        [_piece(one, has_text=has_text) for one in output.outputs],
        output.finished,
        output.num_cached_tokens,
        times.first_token_time,
        times.finished_time,
        logprobs if isinstance(logprobs, FlatLogprobs) else None,
        (times.queued_time, times.scheduled_time, times.last_token_time)
        if output.finished
        else None,
    )


def _piece(output: CompletionOutput, *, has_text: bool) -> Piece:
    logprobs = output.logprobs
    if logprobs is not None and not isinstance(logprobs, FlatLogprobs):  # of a beam search
        logprobs = FlatLogprobs.of(logprobs)
    return Piece(
        output.index,
        output.token_ids,
        output.text if has_text else None,
        output.cumulative_logprob,
        logprobs,
        output.finish_reason,
        output.stop_reason,
    )
