"""`/v1/completions`."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from jax_engine.outputs import CompletionOutput, RequestOutput
from jax_engine.sampling_params import SamplingParams
from jax_engine.serving.api.api_errors import invalid
from jax_engine.serving.api.endpoint_requests import CompletionRequest
from jax_engine.serving.api.endpoint_responses import (
    CompletionChoice,
    CompletionLogprobs,
    GenerationResponse,
    TokenCounts,
    json_response,
    with_nulls,
)
from jax_engine.serving.api.request_prompts import (
    embeds_list,
    embeds_prompt,
    engine_prompt,
    prompt_list,
)
from jax_engine.serving.api.response_logprobs import Offsets, completion_logprobs, prompt_logprobs
from jax_engine.serving.api.service import Service, answer_id
from jax_engine.serving.api.streaming import event_stream, for_client, last_of, merged

DEFAULT_MAX_TOKENS = 16


async def complete(service: Service, request: CompletionRequest, http: HttpRequest) -> Response:
    """Answers a request, as one object or as a stream."""
    service.check_model(request)
    if request.suffix:
        raise invalid("suffix", "suffix is not supported: the model reads from left to right")
    request.check_stream()
    service.adopt(request)
    name = answer_id("cmpl", request.request_id, http)
    call = await for_client(http, _Call.of(service, request, name))
    if request.stream:
        keep_alive_s = service.settings.sse_keep_alive_s
        return await event_stream(http, call.events(), keep_alive_s)
    return json_response(await for_client(http, call.answer()))


def _params(service: Service, request: CompletionRequest) -> SamplingParams:
    if request.max_tokens == 0 and not request.echo:
        raise invalid("max_tokens", "max_tokens must be at least 1, or 0 with echo, got 0")
    top = request.logprobs if request.echo else None
    if request.logprob_token_ids and request.max_tokens == 0:
        name = "logprob_token_ids"
        raise invalid(name, f"{name} must not be given with max_tokens=0: no token follows")
    wanted = DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    return request.sampling_params(
        service.defaults,
        max_tokens=service.within(wanted) or 1,  # at least 1: with echo alone it is not shown
        logprobs=request.logprobs,
        prompt_logprobs=top if request.prompt_logprobs is None else request.prompt_logprobs,
    )


@dataclass
class _Call:
    """A request under way.

    Attributes:
        offsets: where the tokens of each choice that has begun start; None: nobody asks.
    """

    service: Service
    request: CompletionRequest
    id: str
    params: list[SamplingParams]
    prompts: list[dict[str, Any]]
    counts: TokenCounts = field(default_factory=TokenCounts)
    created: int = field(default_factory=lambda: int(time.time()))
    offsets: dict[int, Offsets | None] = field(default_factory=dict)

    @classmethod
    async def of(cls, service: Service, request: CompletionRequest, name: str) -> "_Call":
        params = _params(service, request)
        embeds, texts = embeds_list(request.prompt_embeds), list[str | list[int]]()
        if request.prompt is None and not embeds:
            raise invalid("prompt", "prompt is missing")
        if not embeds or request.prompt:
            texts = prompt_list("prompt", request.prompt)
        if embeds and request.echo:
            raise invalid("echo", "echo must be false with prompt_embeds: they are no text")
        service.check_samples(params, len(embeds) + len(texts))
        service.check_queue(len(embeds) + len(texts))
        prompts = await asyncio.gather(
            *(embeds_prompt(service, one, request.cache_salt) for one in embeds),
            *(
                engine_prompt(
                    service,
                    one,
                    add_special_tokens=request.add_special_tokens,
                    any_length=request.truncate_prompt_tokens is not None,
                    cache_salt=request.cache_salt,
                )
                for one in texts
            ),
        )
        wanted, side = request.max_tokens, request.truncation_side
        each = [service.fit(params, one, wanted, side) for one in prompts]
        return cls(service, request, name, each, prompts)

    def _streams(self) -> list[AsyncGenerator[RequestOutput]]:
        return [
            self.service.generate(one, params, self.request, number)
            for number, (one, params) in enumerate(zip(self.prompts, self.params, strict=True))
        ]

    async def answer(self) -> GenerationResponse[CompletionChoice]:
        """All choices at once."""
        outputs = await last_of(self._streams())
        choices = []
        for i, output in enumerate(outputs):
            self.counts.add(i, output, shown=self.request.max_tokens != 0)
            choices += [
                with_nulls(self._choice(i * self.request.n + k, output, one))
                for k, one in enumerate(output.outputs)
            ]
        answer = with_nulls(self._answer(choices, self.counts.usage()))
        answer.prompt_logprobs = answer.prompt_token_ids = UNSET  # the choices have them
        answer.metrics = self._timings(outputs[0])
        return answer

    async def events(self) -> AsyncGenerator[GenerationResponse[CompletionChoice]]:
        """The choices as they grow, and what was used where that is asked for."""
        async for i, output in merged(self._streams()):
            self.counts.add(i, output, shown=self.request.max_tokens != 0)
            for one in output.outputs:
                choice = self._choice(i * self.request.n + one.index, output, one)
                usage: Any = None if self.request.usage_at_end else UNSET
                if self.request.usage_always:
                    usage = self.counts.usage_of(i, one.index)
                yield self._answer([choice], usage)
        if self.request.usage_at_end:
            last = self._answer([], self.counts.usage())
            last.metrics = self._timings(output)
            yield last

    def _timings(self, output: RequestOutput) -> Any:
        num_outputs = len(self.prompts) * self.request.n
        num_tokens = self.counts.usage().completion_tokens
        return self.service.timings(output.metrics, num_tokens, num_outputs)

    def _answer(
        self, choices: list[CompletionChoice], usage: Any
    ) -> GenerationResponse[CompletionChoice]:
        name = self.service.name_of(self.request)
        return GenerationResponse(self.id, "text_completion", self.created, name, choices, usage)

    def _choice(self, index: int, output: RequestOutput, one: CompletionOutput) -> CompletionChoice:
        request, first = self.request, index not in self.offsets
        if first:
            self.offsets[index] = self._offsets(self.prompts[index // request.n], output)
        text = "" if request.max_tokens == 0 else one.text
        echo = self._prompt_text(output) if request.echo and first else None
        logprobs = self._logprobs(output, one, self.offsets[index], echo)
        text = (echo or "") + text
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

    def _offsets(self, prompt: dict[str, Any], output: RequestOutput) -> Offsets | None:
        if self.request.logprobs is None:
            return None
        hides = self.params[0].skip_special_tokens
        ids = [] if "prompt_embeds" in prompt else output.prompt_token_ids
        return Offsets(self.service.tokenizer, ids, skip_special_tokens=hides)

    def _prompt_text(self, output: RequestOutput) -> str:
        """The prompt as it was given; of token ids all their text, if there is a tokenizer."""
        if self.service.llm.config.skip_tokenizer_init:
            return ""
        if output.prompt is not None and self.request.truncate_prompt_tokens is None:
            return output.prompt
        ids = output.prompt_token_ids
        return self.service.tokenizer.decode(ids, skip_special_tokens=False)

    def _logprobs(
        self,
        output: RequestOutput,
        one: CompletionOutput,
        offsets: Offsets | None,
        echo: str | None,
    ) -> CompletionLogprobs | None:
        if offsets is None:
            return None
        top = self.request.shown_logprobs(self.request.logprobs)
        tokens: list[int] = []
        entries: list[Any] = []
        places: list[int] = []
        if echo is not None:
            tokens += output.prompt_token_ids
            entries += output.prompt_logprobs or ()
            places += offsets.of_prompt(echo)
        if self.request.max_tokens != 0:
            tokens += one.token_ids
            entries += one.logprobs or ()
            places += offsets.of_output(one.token_ids)
        as_ids = self.request.return_tokens_as_token_ids
        tokenizer = self.service.tokenizer
        return completion_logprobs(tokenizer, tokens, entries, places, top, as_ids=as_ids)
