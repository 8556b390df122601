"""`/v1/chat/completions`."""

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec import UNSET
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.outputs import CompletionOutput, RequestOutput
from jax_engine.serving.api.chat_generation import ChatGeneration, count_reasoning_tokens
from jax_engine.serving.api.endpoint_requests import ChatRequest
from jax_engine.serving.api.endpoint_responses import (
    ChatChoice,
    ChatChunkChoice,
    ChatMessage,
    CompletionDetails,
    Delta,
    GenerationResponse,
    Usage,
    json_response,
    tool_call_deltas,
    tool_calls,
    with_nulls,
)
from jax_engine.serving.api.response_logprobs import prompt_logprobs
from jax_engine.serving.api.service import Service, answer_id
from jax_engine.serving.api.streaming import event_stream, for_client
from jax_engine.serving.parsers.parser_base import TurnDelta
from jax_engine.tokenization.chat_content import content_text


async def chat(service: Service, request: ChatRequest, http: HttpRequest) -> Response:
    """Answers a request, as one object or as a stream."""
    call = await for_client(http, ChatGeneration.of(service, request))
    writer = _Writer(call, answer_id("chatcmpl", request.request_id, http))
    if request.stream:
        keep_alive_s = service.settings.sse_keep_alive_s
        return await event_stream(http, writer.events(), keep_alive_s)
    return json_response(await for_client(http, writer.answer()))


def _message(turn: TurnDelta, echo: str) -> ChatMessage:
    """A whole turn. White space alone is no content beside calls."""
    content = turn.content if turn.content.strip() or not turn.calls else None
    reasoning = turn.reasoning or None
    calls = tool_calls(turn.calls) or UNSET
    content = echo + (content or "") if echo else content
    return ChatMessage("assistant", content, None, calls, reasoning, reasoning)


def _delta(turn: TurnDelta) -> Delta:
    reasoning = turn.reasoning or UNSET
    calls = tool_call_deltas(turn.calls) or UNSET
    return Delta(UNSET, turn.content or UNSET, calls, reasoning, reasoning)


@dataclass
class _Writer:
    """Writes what a call says as chat completions."""

    call: ChatGeneration
    id: str
    created: int = field(default_factory=lambda: int(time.time()))
    _thoughts: dict[int, str] = field(default_factory=dict)

    @property
    def request(self) -> ChatRequest:
        return self.call.request

    async def answer(self) -> GenerationResponse[ChatChoice]:
        """All choices at once."""
        output = await self.call.output()
        choices = []
        for index, one in enumerate(output.outputs):
            turn = self._turn_delta(one)
            choices.append(
                ChatChoice(
                    index,
                    _message(turn, self._echo),
                    self.call.logprobs(one),
                    self.call.finish_reason(one),
                    one.stop_reason,
                    self._ids(one),
                )
            )
        answer = with_nulls(self._answer(choices, await self._usage(), "chat.completion"))
        answer.metrics = self._timings(output)
        if self.request.return_token_ids:
            answer.prompt_token_ids = output.prompt_token_ids
        if self.request.prompt_logprobs is not None:
            answer.prompt_logprobs = prompt_logprobs(output.prompt_logprobs)
        return answer

    async def events(self) -> AsyncGenerator[GenerationResponse[ChatChunkChoice]]:
        """Roles first, then the choices as they grow, and what was used if that is asked for."""
        begun = False
        async for output in self.call.outputs():
            if not begun:
                begun = True
                yield self._roles(output, self._usage_of(None))
                for index in range(self.request.n if self._echo else 0):
                    echo = ChatChunkChoice(index, Delta(content=self._echo))
                    yield self._answer([echo], self._usage_of(None), "chat.completion.chunk")
            for one in output.outputs:
                chunk = self._chunk(one)
                if chunk is not None:
                    usage = self._usage_of(one.index)
                    yield self._answer([chunk], usage, "chat.completion.chunk")
        if self.request.usage_at_end:
            last: Any = self._answer([], await self._usage(), "chat.completion.chunk")
            last.metrics = self._timings(output)
            yield last

    def _timings(self, output: RequestOutput) -> Any:
        num_tokens = self.call.counts.usage().completion_tokens
        return self.call.service.timings(output.metrics, num_tokens, self.request.n)

    def _usage_of(self, choice: int | None) -> Any:
        """What an event says that a choice has used."""
        if self.request.usage_always:
            return self.call.counts.usage_of(0, choice)
        return None if self.request.usage_at_end else UNSET

    def _roles(self, output: RequestOutput, usage: Any) -> GenerationResponse[ChatChunkChoice]:
        roles = [ChatChunkChoice(index, Delta("assistant", "")) for index in range(self.request.n)]
        answer = self._answer(roles, usage, "chat.completion.chunk")
        if self.request.return_token_ids:
            answer.prompt_token_ids = output.prompt_token_ids
        return answer

    def _chunk(self, one: CompletionOutput) -> ChatChunkChoice | None:
        """What is new in a choice; None: nothing that a client would see."""
        delta = _delta(self._turn_delta(one))
        logprobs, reason = self.call.logprobs(one), self.call.finish_reason(one)
        ids = self._ids(one)
        if delta == Delta() and logprobs is None and reason is None and ids is UNSET:
            return None
        return ChatChunkChoice(one.index, delta, logprobs, reason, one.stop_reason, ids)

    def _answer[Choice](
        self, choices: list[Choice], usage: Any, kind: str
    ) -> GenerationResponse[Choice]:
        return GenerationResponse(
            self.id,
            kind,
            self.created,
            self.call.service.name_of(self.call.request),
            choices,
            usage,
        )

    def _turn_delta(self, one: CompletionOutput) -> TurnDelta:
        turn = self.call.turn_delta(one)
        if turn.reasoning:
            self._thoughts[one.index] = self._thoughts.get(one.index, "") + turn.reasoning
        return turn

    async def _usage(self) -> Usage:
        """All that was used, at the end."""
        usage, details = self.call.counts.usage(), CompletionDetails()
        if self._thoughts:
            thought = await count_reasoning_tokens(self.call, self._thoughts.values())
            details.reasoning_tokens = thought
        if self.request.prediction is not None:
            accepted, rejected = self.call.counts.predicted
            details.accepted_prediction_tokens = accepted
            details.rejected_prediction_tokens = rejected
        if details != CompletionDetails():
            usage.completion_tokens_details = details
        return usage

    def _ids(self, one: CompletionOutput) -> Any:
        if self.request.return_token_ids:
            return one.token_ids
        return UNSET if self.request.stream else None

    @cached_property
    def _echo(self) -> str:
        """The text of the last message, if the answer is to begin with it."""
        last = self.request.messages[-1]
        is_echoed = self.request.echo and last.get("role") == "assistant"
        return content_text(last.get("content")) if is_echoed else ""
