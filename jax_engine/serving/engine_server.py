"""What the engine's process does with each message, without sockets.

Commands become jobs of the engine's loop, and what is new in requests becomes reports to the API's
process.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jax_engine.engine.engine_core_output import EngineCoreOutput
from jax_engine.engine.engine_loop import EngineLoop
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.requests.request import Request, RequestUpdate
from jax_engine.errors import EngineDeadError, JaxEngineError
from jax_engine.lora.request import LoRARequest
from jax_engine.outputs import PoolingRequestOutput
from jax_engine.serving.messages import (
    Abort,
    Add,
    Answer,
    Ask,
    AskLoRA,
    CancelPause,
    Outputs,
    Pause,
    Pooled,
    Question,
    Refused,
    Report,
    Resume,
    Stop,
    read_params,
)

logger = logging.getLogger("jax_engine")

type Command = Add | Abort | Ask | AskLoRA | Pause | CancelPause | Resume | Stop


class EngineServer:
    """Carries out commands and reports what comes of them.

    One thread calls `loop.run`. Any one other thread calls `receive`.

    Args:
        send: takes each report; only the loop's thread calls it.
    """

    def __init__(self, engine: LLMEngine, send: Callable[[Report], None]) -> None:
        self.loop = EngineLoop(engine)
        self._engine = engine
        self._send = send
        self._waiting: list[Pause] = []  # until nothing runs
        self._paused_by: set[int] = set()  # numbers of the pauses that have begun
        self._late: list[Request] = []  # came while a pause waits, and are accepted behind it

    def receive(self, command: Command) -> None:
        """Takes a command. A request is checked here, beside the steps that run meanwhile.

        Its adapter is read here, too: commands behind it wait for that, and no step does.
        """
        match command:
            case Add():
                request = self._checked(command)
                self.loop.post(lambda: self._add(request))
            case Abort():
                self.loop.post(lambda: self._abort(command.request_ids))
            case Ask():
                self.loop.post(lambda: self._send(self._answer(command)))
            case AskLoRA():
                answer = self._of_lora(command)
                self.loop.post(lambda: self._send(answer))
            case Pause():
                self.loop.post(lambda: self._pause(command))
            case CancelPause():
                self.loop.post(lambda: self._give_up(command.number))
            case Resume():
                self.loop.post(lambda: self._resume(command.number))
            case Stop():
                self.loop.stop()

    def _checked(self, add: Add) -> Request | Refused:
        try:
            params = read_params(dict(add.params), pooling=add.pooling, streams=add.streams)
            prompt: dict[str, Any] = {
                "prompt_token_ids": add.token_ids,
                "cache_salt": add.cache_salt,
                "prediction": add.prediction,
                "token_type_ids": add.token_type_ids,
            }
            if add.embeds is not None and self._engine.embeds is not None:
                prompt["prompt_embeds"] = self._engine.embeds.read(add.embeds)
                del prompt["prompt_token_ids"]
            lora = None if add.lora is None else LoRARequest(**add.lora)
            request = self._engine.check_request(prompt, params, add.request_id, lora)
            request.serve_as(
                add.request_id,
                arrival_time=add.arrival_time,
                priority=add.priority,
                timeout=add.timeout,
            )
        except Exception as error:  # a request never ends the process
            return _refused(add.request_id, error)
        return request

    def _add(self, request: Request | Refused) -> None:
        if isinstance(request, Refused):
            self._send(Outputs([request]))
        elif self._waiting:
            self._late.append(request)
        else:
            self._accept(request)

    def _accept(self, request: Request) -> None:
        try:
            self.loop.add([request], self)
        except Exception as error:
            self._send(Outputs([_refused(request.request_id, error)]))

    def _abort(self, request_ids: list[str]) -> None:
        late, self._late = self._late, []
        for request in late:
            if request.request_id in request_ids:
                self._accept(request)  # so that its end is told
            else:
                self._late.append(request)
        self.loop.abort(request_ids)

    def take(self, updates: list[RequestUpdate]) -> None:
        """As `Reader.take`."""
        self._send(Outputs([*messages_of(updates)]))
        self._end_pauses()

    def fail(self, request_ids: list[str], error: JaxEngineError) -> None:
        """As `Reader.fail`."""
        if not isinstance(error, EngineDeadError):
            logger.error("%d requests are aborted", len(request_ids), exc_info=error)
        self._send(Outputs([_refused(one, error) for one in request_ids]))
        self._end_pauses()

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

    def _of_lora(self, ask: AskLoRA) -> Answer:
        """Carries out what an adapter is asked for, here, beside the steps that run meanwhile."""
        engine = self._engine
        try:
            match ask.action:
                case "add":
                    return Answer(ask.number, [*engine.load_lora(LoRARequest(**(ask.lora or {})))])
                case "remove":
                    return Answer(ask.number, engine.remove_lora(ask.lora_id))
                case "pin":
                    return Answer(ask.number, engine.pin_lora(ask.lora_id))
                case "list":
                    return Answer(ask.number, sorted(engine.list_loras()))
        except Exception as error:  # an adapter never ends the process
            return Answer(ask.number, error=str(error), kind=type(error).__name__)

    def _pause(self, pause: Pause) -> None:
        if pause.mode == "wait":
            self._waiting.append(pause)
            self._end_pauses()
            return
        if pause.mode == "abort":
            self.loop.leave(self)
        self._stop_steps([pause])

    def _end_pauses(self) -> None:
        """Begins the pauses that wait, once nothing runs."""
        if self._waiting and not self.loop.is_busy:
            waiting, self._waiting = self._waiting, []
            self._stop_steps(waiting)

    def _stop_steps(self, pauses: list[Pause]) -> None:
        self.loop.paused = True
        self._paused_by |= {one.number for one in pauses}
        if any(one.clear_cache and one.mode != "keep" for one in pauses):
            self._engine.reset_prefix_cache()
        for one in pauses:
            self._send(Answer(one.number))
        self._let_in()

    def _give_up(self, number: int) -> None:
        """Nobody waits for this pause any more, nor will anybody end it if it has begun by now."""
        self._waiting = [one for one in self._waiting if one.number != number]
        self._paused_by.discard(number)
        self.loop.paused = bool(self._paused_by)
        self._let_in()

    def _resume(self, number: int) -> None:
        """Ends all pauses that have begun."""
        self._paused_by.clear()
        self.loop.paused = False
        self._send(Answer(number))

    def _let_in(self) -> None:
        """Accepts who came while a pause waited: they may not delay it, else it might not come."""
        if not self._waiting:
            late, self._late = self._late, []
            for request in late:
                self._accept(request)


def _refused(request_id: str, error: Exception) -> Refused:
    if not isinstance(error, JaxEngineError):
        logger.error("request %s failed", request_id, exc_info=error)
    return Refused(request_id, type(error).__name__, str(error))


def messages_of(updates: Iterable[RequestUpdate]) -> list[EngineCoreOutput | Pooled]:
    """A message for each request: its output as it is, or the array of a pooling request."""
    return [_pooled(new) if isinstance(new, PoolingRequestOutput) else new for _, new in updates]


def _pooled(output: PoolingRequestOutput) -> Pooled:
    data = output.outputs.data
    return Pooled(
        output.request_id, data.tobytes(), list(data.shape), data.dtype.name, output.finished
    )
