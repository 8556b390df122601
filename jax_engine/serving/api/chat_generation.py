"""A chat under way. Each endpoint that chats runs one, and writes its turns in its own form."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from jax_engine.engine.requests.prompts import PromptInput
from jax_engine.outputs import CompletionOutput, RequestOutput
from jax_engine.sampling_params import SamplingParams
from jax_engine.serving.api.api_errors import invalid
from jax_engine.serving.api.endpoint_requests import ChatRequest
from jax_engine.serving.api.endpoint_responses import ChatLogprobs, TokenCounts
from jax_engine.serving.api.request_prompts import chat_prompt
from jax_engine.serving.api.response_logprobs import chat_logprobs
from jax_engine.serving.api.service import Service
from jax_engine.serving.api.streaming import last_of
from jax_engine.serving.api.turn_parsing import TurnPlan, choice_of, plan_of
from jax_engine.serving.parsers.parser_base import Turn, TurnDelta


@dataclass
class ChatGeneration:
    """
    Attributes:
        plan: how its turns are read.
        counts: the tokens so far.
    """

    service: Service
    request: ChatRequest
    params: SamplingParams
    prompt: PromptInput
    plan: TurnPlan
    counts: TokenCounts = field(default_factory=TokenCounts)
    _turns: dict[int, Turn] = field(default_factory=dict)

    @classmethod
    async def of(cls, service: Service, request: ChatRequest) -> Self:
        """Checks a request and makes its prompt.

        Raises:
            ApiError, InvalidRequestError: it is not acceptable.
        """
        service.check_model(request)
        service.check_queue()
        request.check_stream()
        service.adopt(request)
        choice = choice_of(
            request.tools, request.tool_choice, request.parallel_tool_calls, request.schemas
        )
        params = _params(service, request)
        service.check_samples(params)
        any_length = request.truncate_prompt_tokens is not None
        prompt = await chat_prompt(service, request, request, any_length=any_length)
        params = service.fit(params, prompt, request.max_output, request.truncation_side)
        plan = plan_of(
            service.turn_format_of(request),
            service.tokenizer,
            choice,
            params.structured_outputs,
            prompt["prompt"],
            keeps_special=not params.skip_special_tokens,
            include_reasoning=request.include_reasoning,
            request=request,
            prompt_ids=prompt["prompt_token_ids"],
        )
        params.structured_outputs = plan.grammar
        params.skip_special_tokens = params.skip_special_tokens and not plan.shows_special
        if request.cache_salt is not None:
            prompt["cache_salt"] = request.cache_salt
        if request.prediction is not None:
            prompt["prediction"] = request.prediction.text
        return cls(service, request, params, prompt, plan)

    def _outputs(self) -> AsyncIterator[RequestOutput]:
        return self.service.generate(self.prompt, self.params, self.request)

    async def output(self) -> RequestOutput:
        """The whole output of a request without `stream`; then `turn_delta` reads its samples."""
        [output] = await last_of([self._outputs()])
        self.counts.add(0, output)
        return output

    async def outputs(self) -> AsyncIterator[RequestOutput]:
        """What is new, of a request with `stream`; `turn_delta` reads each sample of it."""
        async for output in self._outputs():
            self.counts.add(0, output)
            yield output

    def turn_delta(self, sample: CompletionOutput) -> TurnDelta:
        """What is new in a sample, read once and in order."""
        turn = self._turns.get(sample.index)
        if turn is None:
            turn = self._turns[sample.index] = self.plan.new_turn()
        reason = sample.finish_reason
        cut = reason != "stop" or isinstance(sample.stop_reason, str)
        return turn.take(sample.text, ended=reason is not None, cut=cut, token_ids=sample.token_ids)

    def finish_reason(self, sample: CompletionOutput) -> str | None:
        """How a sample ended, once it was read; None: it has not."""
        called = sample.index in self._turns and self._turns[sample.index].calls_tools
        return "tool_calls" if called and sample.finish_reason == "stop" else sample.finish_reason

    def logprobs(self, sample: CompletionOutput) -> ChatLogprobs | None:
        """Those of a sample's tokens; None: nobody asks for them."""
        request = self.request
        if not request.logprobs or sample.logprobs is None:
            return None
        return chat_logprobs(
            self.service.tokenizer,
            sample.token_ids,
            sample.logprobs,
            request.shown_logprobs(request.top_logprobs or 0),
            as_ids=request.return_tokens_as_token_ids,
        )


def _params(service: Service, request: ChatRequest) -> SamplingParams:
    if request.top_logprobs and not request.logprobs:
        raise invalid("top_logprobs", "top_logprobs must only be given with logprobs=true")
    # Without either: as many as fit
    defaults: dict[str, Any] = {"max_tokens": None} | service.defaults
    return request.sampling_params(
        defaults,
        max_tokens=service.within(request.max_output),
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
    )


async def count_reasoning_tokens(call: ChatGeneration, thoughts: Iterable[str]) -> int:
    """The tokens of all reasoning: its texts, turned into tokens once more."""
    count, ids = 0, call.service.encoder.ids
    for text in thoughts:
        count += len(await ids(text, add_special_tokens=False, any_length=True))
    return min(count, call.counts.usage().completion_tokens)
