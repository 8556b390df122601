"""`/v1/chat/completions`."""

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.outputs import CompletionOutput, RequestOutput
from jax_engine.serving.openai.chat_call import ChatCall
from jax_engine.serving.openai.events import event_stream
from jax_engine.serving.openai.logprobs import chat_logprobs, prompt_logprobs
from jax_engine.serving.openai.requests import ChatRequest
from jax_engine.serving.openai.responses import (
    Answer,
    ChatChoice,
    ChatChunkChoice,
    ChatLogprobs,
    ChatMessage,
    Delta,
    json_response,
)
from jax_engine.serving.openai.running import for_client
from jax_engine.serving.openai.service import Service, answer_id


async def chat(service: Service, request: ChatRequest, http: HttpRequest) -> Response:
    """Answers a request, as one object or as a stream."""
    call = await ChatCall.of(service, request)
    writer = _Writer(call, answer_id("chatcmpl", request.request_id, http))
    if request.stream:
        return await event_stream(http, writer.events())
    return json_response(await for_client(http, writer.answer()))


@dataclass
class _Writer:
    """Writes what a call says as chat completions."""

    call: ChatCall
    id: str
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def request(self) -> ChatRequest:
        return self.call.request

    async def answer(self) -> Answer[ChatChoice]:
        """All choices at once."""
        output = await self.call.output()
        choices = []
        for index, one in enumerate(output.outputs):
            message = ChatMessage("assistant", self.call.said(one).content)
            choices.append(
                ChatChoice(
                    index,
                    message,
                    self._logprobs(one),
                    self.call.finish_reason(one),
                    one.stop_reason,
                    self._ids(one),
                )
            )
        answer = self._answer(choices, self.call.counts.usage(), "chat.completion")
        if self.request.return_token_ids:
            answer.prompt_token_ids = output.prompt_token_ids
        if self.request.prompt_logprobs is not None:
            answer.prompt_logprobs = prompt_logprobs(output.prompt_logprobs)
        return answer

    async def events(self) -> AsyncGenerator[Answer[ChatChunkChoice]]:
        """Roles first, then the choices as they grow, and what was used if that is asked for."""
        options = self.request.stream_options
        always = options is not None and options.continuous_usage_stats
        at_end = options is not None and options.include_usage
        begun = False
        async for output in self.call.outputs():
            none: Any = None if at_end else UNSET
            if not begun:
                begun = True
                yield self._roles(output, none)
            for one in output.outputs:
                usage = self.call.counts.usage() if always else none
                yield self._answer([self._chunk(one)], usage, "chat.completion.chunk")
        if at_end:
            yield self._answer([], self.call.counts.usage(), "chat.completion.chunk")

    def _roles(self, output: RequestOutput, usage: Any) -> Answer[ChatChunkChoice]:
        roles = [ChatChunkChoice(index, Delta("assistant", "")) for index in range(self.request.n)]
        answer = self._answer(roles, usage, "chat.completion.chunk")
        if self.request.return_token_ids:
            answer.prompt_token_ids = output.prompt_token_ids
        return answer

    def _chunk(self, one: CompletionOutput) -> ChatChunkChoice:
        said = self.call.said(one)
        return ChatChunkChoice(
            one.index,
            Delta(content=said.content),
            self._logprobs(one),
            self.call.finish_reason(one),
            one.stop_reason,
            self._ids(one),
        )

    def _answer[Choice](self, choices: list[Choice], usage: Any, kind: str) -> Answer[Choice]:
        return Answer(self.id, kind, self.created, self.call.service.name, choices, usage)

    def _ids(self, one: CompletionOutput) -> Any:
        return one.token_ids if self.request.return_token_ids else UNSET

    def _logprobs(self, one: CompletionOutput) -> ChatLogprobs | None:
        if not self.request.logprobs or one.logprobs is None:
            return None
        top = self.request.top_logprobs or 0
        return chat_logprobs(self.call.service.tokenizer, one.token_ids, one.logprobs, top)
