"""`/v1/chat/completions`."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.engine.prompts import PromptInput
from jax_engine.outputs import CompletionOutput, RequestOutput
from jax_engine.sampling_params import SamplingParams
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.events import event_stream
from jax_engine.serving.openai.logprobs import chat_logprobs, prompt_logprobs
from jax_engine.serving.openai.prompts import chat_prompt
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
from jax_engine.serving.openai.running import for_client, last_of
from jax_engine.serving.openai.service import Service, answer_id
from jax_engine.serving.openai.usage import Counts


async def chat(service: Service, request: ChatRequest, http: HttpRequest) -> Response:
    """Answers a request, as one object or as a stream."""
    service.check_model(request)
    service.check_queue()
    request.check_stream()
    _check_tools(request)
    params = _params(service, request)
    prompt = await chat_prompt(service, request)
    if request.cache_salt is not None:
        prompt["cache_salt"] = request.cache_salt
    name = answer_id("chatcmpl", request.request_id, http)
    call = _Call(service, request, name, params, prompt)
    if request.stream:
        return await event_stream(http, call.events())
    return json_response(await for_client(http, call.answer()))


def _check_tools(request: ChatRequest) -> None:
    """Tools are shown to the model; its calls are not parsed, so none can be required."""
    if request.tool_choice not in (None, "none", "auto"):
        raise invalid(
            "tool_choice",
            "tool_choice must be 'none' or 'auto': this server does not yet make the model call a "
            "tool",
        )


def _params(service: Service, request: ChatRequest) -> SamplingParams:
    if request.top_logprobs is not None and not request.logprobs:
        raise invalid("top_logprobs", "top_logprobs must only be given with logprobs=true")
    if request.stream and request.best_of is not None and request.best_of > request.n:
        raise invalid("best_of", "best_of must not be above n with stream=true")
    wanted = request.max_completion_tokens
    if wanted is None:
        wanted = request.max_tokens
    # Without either: as many as fit
    defaults: dict[str, Any] = {"max_tokens": None} | service.defaults
    return request.sampling_params(
        defaults,
        best_of=request.best_of,
        max_tokens=wanted,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
    )


@dataclass
class _Call:
    """A request under way."""

    service: Service
    request: ChatRequest
    id: str
    params: SamplingParams
    prompt: PromptInput
    counts: Counts = field(default_factory=Counts)
    created: int = field(default_factory=lambda: int(time.time()))

    def _stream(self) -> AsyncIterator[RequestOutput]:
        service, priority = self.service, self.request.priority
        name = service.engine_id(self.id)
        return service.llm.generate(self.prompt, self.params, name, priority=priority)

    async def answer(self) -> Answer[ChatChoice]:
        """All choices at once."""
        [output] = await last_of([self._stream()])
        self.counts.add(0, output)
        choices = []
        for index, one in enumerate(output.outputs):
            message = ChatMessage("assistant", one.text)
            choices.append(
                ChatChoice(
                    index,
                    message,
                    self._logprobs(one),
                    one.finish_reason,
                    one.stop_reason,
                    self._ids(one),
                )
            )
        answer = self._answer(choices, self.counts.usage(), "chat.completion")
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
        async for output in self._stream():
            none: Any = None if at_end else UNSET
            if not begun:
                begun = True
                yield self._roles(output, none)
            self.counts.add(0, output)
            for one in output.outputs:
                usage = self.counts.usage() if always else none
                yield self._answer([self._chunk(one)], usage, "chat.completion.chunk")
        if at_end:
            yield self._answer([], self.counts.usage(), "chat.completion.chunk")

    def _roles(self, output: RequestOutput, usage: Any) -> Answer[ChatChunkChoice]:
        roles = [ChatChunkChoice(index, Delta("assistant", "")) for index in range(self.request.n)]
        answer = self._answer(roles, usage, "chat.completion.chunk")
        if self.request.return_token_ids:
            answer.prompt_token_ids = output.prompt_token_ids
        return answer

    def _chunk(self, one: CompletionOutput) -> ChatChunkChoice:
        return ChatChunkChoice(
            one.index,
            Delta(content=one.text),
            self._logprobs(one),
            one.finish_reason,
            one.stop_reason,
            self._ids(one),
        )

    def _answer[Choice](self, choices: list[Choice], usage: Any, kind: str) -> Answer[Choice]:
        return Answer(self.id, kind, self.created, self.service.name, choices, usage)

    def _ids(self, one: CompletionOutput) -> Any:
        return one.token_ids if self.request.return_token_ids else UNSET

    def _logprobs(self, one: CompletionOutput) -> ChatLogprobs | None:
        if not self.request.logprobs or one.logprobs is None:
            return None
        top = self.request.top_logprobs or 0
        return chat_logprobs(self.service.tokenizer, one.token_ids, one.logprobs, top)
