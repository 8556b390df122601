"""Requests served through the messages between two processes, in one process and step by step."""

from collections.abc import Callable, Sequence
from typing import Any

from jax_engine import LLMEngine, SamplingParams
from jax_engine.engine.assembler import Assembler
from jax_engine.engine.pieces import News
from jax_engine.engine.prompts import Prompt
from jax_engine.serving.engine_server import EngineServer
from jax_engine.serving.messages import (
    Abort,
    Add,
    Outputs,
    Report,
    decode_command,
    decode_report,
    encode,
)
from jax_engine.serving.streams import CompletionStream
from jax_engine.serving.wire_params import streams, written
from jax_engine.tokenization.tokenizer import Tokenizer


class MessageClient:
    """Both ends of the messages; each message passes through bytes.

    Attributes:
        streams: by request id.
        failures: the messages of requests that were refused, by request id.
    """

    def __init__(self, engine: LLMEngine, tokenizer: Tokenizer | None) -> None:
        self.streams: dict[str, CompletionStream] = {}
        self.failures: dict[str, str] = {}
        self._tokenizer = tokenizer
        self._server = EngineServer(engine, self._take)

    def add(self, request_id: str, token_ids: Sequence[int], params: SamplingParams) -> None:
        """Sends a request."""
        prompt = Prompt(None, list(token_ids))
        assembler = Assembler(request_id, prompt, params, self._tokenizer, 0.0)
        self.streams[request_id] = CompletionStream(assembler, 1)
        fields = written(params)
        self.send(Add(request_id, prompt.token_ids, fields, False, 0.0, streams=streams(params)))

    def send(self, command: Any) -> None:
        """Sends a command; the next turn takes it."""
        received: Any = decode_command(encode(command))
        self._server.receive(received)

    def abort(self, request_ids: list[str]) -> None:
        self.send(Abort(request_ids))

    def turn(self) -> None:
        """A turn of the loop. The last command before it must be there, or a request run."""
        self._server.loop.turn()

    def _take(self, report: Report) -> None:
        received = decode_report(encode(report))
        assert isinstance(received, Outputs)
        for output in received.outputs:
            if isinstance(output, News):
                self.streams[output.request_id].take(output)
            else:
                self.failures[output.request_id] = output.message


def serve_through_messages(tokenizer: Tokenizer | None) -> Callable[..., dict[str, list[Any]]]:
    """As `client_view.serve`, for a client that reads after each step."""

    def serve(
        engine: LLMEngine, asked: Sequence[Any], stops: Sequence[Sequence[str]]
    ) -> dict[str, list[Any]]:
        client = MessageClient(engine, tokenizer)
        seen: dict[str, list[Any]] = {str(i): [] for i in range(len(asked))}
        now, last = 0, max(one.step for one in asked)
        while now <= last or engine.has_unfinished_requests():
            for i, (one, stop) in enumerate(zip(asked, stops, strict=True)):
                if one.step == now:
                    client.add(str(i), one.prompt, SamplingParams(**one.given, stop=list(stop)))
                elif one.abort_at is not None and now >= one.step + one.abort_at:
                    client.abort([str(i)])
            client.send(Abort([]))  # so that a turn without requests does not wait
            client.turn()
            for request_id, stream in client.streams.items():
                if (output := stream.read()) is not None:
                    seen[request_id].append(output)
            now += 1
        return seen

    return serve
