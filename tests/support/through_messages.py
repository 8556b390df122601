"""An `EngineUnderTest` behind the messages of two processes, in one process and step by step."""

from collections.abc import Sequence
from typing import Any

from jax_engine import LLMEngine
from jax_engine.engine.assembler import Assembler
from jax_engine.engine.engine_core_output import EngineCoreOutput
from jax_engine.engine.requests.prompts import Prompt
from jax_engine.serving.engine_server import EngineServer
from jax_engine.serving.messages import (
    Abort,
    Add,
    Outputs,
    Report,
    decode_command,
    decode_report,
    encode,
    params_fields,
    streams,
)
from jax_engine.serving.open_requests import CompletionStream
from tests.support.engine_under_test import Request
from tests.support.in_process import InProcess


class ThroughMessages(InProcess):
    """Both ends of the messages; each passes through bytes. A refusal is raised by `step`."""

    def __init__(self, engine: LLMEngine) -> None:
        super().__init__(engine)
        self._streams: dict[str, CompletionStream] = {}
        self._refused: list[str] = []
        self._server = EngineServer(engine, self._take)

    def add(self, request: Request) -> None:
        name, params, prompt = request.request_id, request.sampling_params(), request.prompt
        assembler = Assembler(name, Prompt(None, prompt), params, self.llm_engine.tokenizer, 0.0)
        self._streams[name] = CompletionStream(assembler, 1)
        self._send(Add(
            name, prompt, params_fields(params), False, request.arrival_time, request.cache_salt,
            request.priority, request.timeout, streams(params), list(request.prediction),
        ))  # fmt: skip

    def abort(self, request_ids: Sequence[str]) -> list[Any]:
        self._send(Abort(list(request_ids)))
        return []

    def step(self) -> list[Any]:
        self.abort([])  # so that a turn without requests does not wait
        self._server.loop.turn()
        assert not self._refused, self._refused
        found = [stream.read() for stream in self._streams.values()]
        return [output for output in found if output is not None]

    def _send(self, command: Any) -> None:
        received: Any = decode_command(encode(command))
        self._server.receive(received)

    def _take(self, report: Report) -> None:
        received = decode_report(encode(report))
        assert isinstance(received, Outputs)
        for output in received.outputs:
            if isinstance(output, EngineCoreOutput):
                self._streams[output.request_id].take(output)
            else:
                self._refused.append(output.message)
