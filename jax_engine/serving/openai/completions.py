"""`/v1/completions`."""

import asyncio
import time
from collections.abc import AsyncGenerator
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
from jax_engine.serving.openai.logprobs import completion_logprobs, prompt_logprobs
from jax_engine.serving.openai.prompts import engine_prompt, prompt_list
from jax_engine.serving.openai.requests import CompletionRequest
from jax_engine.serving.openai.responses import (
    Answer,
    CompletionChoice,
    CompletionLogprobs,
    json_response,
)
from jax_engine.serving.openai.running import for_client, last_of, merged
from jax_engine.serving.openai.service import Service, answer_id
from jax_engine.serving.openai.usage import Counts

DEFAULT_MAX_TOKENS = 16


async def complete(service: Service, request: CompletionRequest, http: HttpRequest) -> Response:
    """Answers a request, as one object or as a stream."""
    service.check_model(request)
    if request.suffix:
        raise invalid("suffix", "suffix is not supported: the model reads from left to right")
    request.check_stream()
    call = await _Call.of(service, request, answer_id("cmpl", request.request_id, http))
    if request.stream:
        return await event_stream(http, call.events())
    return json_response(await for_client(http, call.answer()))


def _params(service: Service, request: CompletionRequest) -> SamplingParams:
    if request.max_tokens == 0 and not request.echo:
        raise invalid("max_tokens", "max_tokens must be at least 1, or 0 with echo, got 0")
    top = request.logprobs if request.echo else None
    default = service.defaults.get("max_tokens") or DEFAULT_MAX_TOKENS
    wanted = default if request.max_tokens is None else request.max_tokens
    return request.sampling_params(
        service.defaults,
        max_tokens=wanted or 1,  # at least 1: with echo alone it is not shown
        logprobs=request.logprobs,
        prompt_logprobs=top if request.prompt_logprobs is None else request.prompt_logprobs,
    )


@dataclass
class _Call:
    """A request under way.

    Attributes:
        offsets: how many characters the tokens of each choice of a stream have so far. Its text may
            have fewer: some are held back, as they may begin a stop string.
    """

    service: Service
    request: CompletionRequest
    id: str
    params: SamplingParams
    prompts: list[PromptInput]
    counts: Counts = field(default_factory=Counts)
    created: int = field(default_factory=lambda: int(time.time()))
    offsets: dict[int, int] = field(default_factory=dict)

    @classmethod
    async def of(cls, service: Service, request: CompletionRequest, name: str) -> "_Call":
        params = _params(service, request)
        texts = prompt_list("prompt", request.prompt)
        service.check_samples(params, len(texts))
        service.check_queue(len(texts))
        prompts = await asyncio.gather(
            *(
                engine_prompt(
                    service,
                    one,
                    add_special_tokens=request.add_special_tokens,
                    cache_salt=request.cache_salt,
                )
                for one in texts
            )
        )
        return cls(service, request, name, params, prompts)

    def _streams(self) -> list[AsyncGenerator[RequestOutput]]:
        return [
            self.service.generate(one, self.params, self.request, number)
            for number, one in enumerate(self.prompts)
        ]

    async def answer(self) -> Answer[CompletionChoice]:
        """All choices at once."""
        outputs = await last_of(self._streams())
        choices = []
        for i, output in enumerate(outputs):
            self.counts.add(i, output, shown=self.request.max_tokens != 0)
            choices += [
                self._choice(i * self.request.n + k, output, one, first=True)
                for k, one in enumerate(output.outputs)
            ]
        return self._answer(choices, self.counts.usage())

    async def events(self) -> AsyncGenerator[Answer[CompletionChoice]]:
        """The choices as they grow, and what was used where that is asked for."""
        options = self.request.stream_options
        always = options is not None and options.continuous_usage_stats
        at_end = options is not None and options.include_usage
        async for i, output in merged(self._streams()):
            self.counts.add(i, output, shown=self.request.max_tokens != 0)
            for one in output.outputs:
                index = i * self.request.n + one.index
                first = index not in self.offsets
                choice = self._choice(index, output, one, first=first)
                usage: Any = self.counts.usage() if always else (None if at_end else UNSET)
                yield self._answer([choice], usage)
        if at_end:
            yield self._answer([], self.counts.usage())

    def _answer(self, choices: list[CompletionChoice], usage: Any) -> Answer[CompletionChoice]:
        name = self.service.name
        return Answer(self.id, "text_completion", self.created, name, choices, usage)

    def _choice(
        self, index: int, output: RequestOutput, one: CompletionOutput, *, first: bool
    ) -> CompletionChoice:
        request = self.request
        echo = request.echo and first
        text = "" if request.max_tokens == 0 else one.text
        if echo:
            text = self._prompt_text(output) + text
        logprobs = self._logprobs(output, one, self.offsets.get(index, 0), echo=echo)
        self.offsets[index] = self._end(index, logprobs)
        choice = CompletionChoice(index, text, logprobs, one.finish_reason, one.stop_reason)
        if request.max_tokens == 0:
            choice.finish_reason, choice.stop_reason = "length", None
        if request.return_token_ids:
            choice.token_ids = [] if request.max_tokens == 0 else one.token_ids
            if first:
                choice.prompt_token_ids = output.prompt_token_ids
        if request.prompt_logprobs is not None:
            choice.prompt_logprobs = prompt_logprobs(output.prompt_logprobs)
        return choice

    def _end(self, index: int, logprobs: CompletionLogprobs | None) -> int:
        if logprobs is None or not logprobs.tokens:
            return self.offsets.get(index, 0)
        return logprobs.text_offset[-1] + len(logprobs.tokens[-1])

    def _prompt_text(self, output: RequestOutput) -> str:
        if output.prompt is not None and self.request.truncate_prompt_tokens is None:
            return output.prompt
        return self.service.tokenizer.decode(output.prompt_token_ids)

    def _logprobs(
        self, output: RequestOutput, one: CompletionOutput, offset: int, *, echo: bool
    ) -> CompletionLogprobs | None:
        top = self.request.logprobs
        if top is None:
            return None
        tokens: list[int] = []
        entries: list[Any] = []
        if echo:
            tokens += output.prompt_token_ids
            entries += output.prompt_logprobs or ()
        if self.request.max_tokens != 0:
            tokens += one.token_ids
            entries += one.logprobs or ()
        return completion_logprobs(self.service.tokenizer, tokens, entries, top, offset)
