"""A request as the engine keeps it, from its check until its last output.

`RequestChecks` checks prompts and parameters against the model and the engine, before anything is
allocated, and builds the `Request`.
"""

import logging
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jax_engine.checks import check_integer, check_number, shown
from jax_engine.config.reasoning_markers import ReasoningMarkers
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.assembler import Assembler
from jax_engine.engine.engine_core_output import EngineCoreOutput
from jax_engine.engine.pooling.pooling import PooledParams, PooledResults
from jax_engine.engine.requests.masks import ConstraintBuilder, replay_trace
from jax_engine.engine.requests.prompt_embeds import EmbedsForm
from jax_engine.engine.requests.prompts import (
    Prompt,
    PromptInput,
    TextLength,
    parse_prompt,
    prompt_text,
    truncate_prompt,
)
from jax_engine.engine.results import Results, check_beams
from jax_engine.errors import InvalidRequestError
from jax_engine.lora.adapter import Adapter
from jax_engine.lora.request import LoRARequest
from jax_engine.outputs import AnyRequestOutput, PoolingRequestOutput, RequestMetrics
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import SamplingParams
from jax_engine.speculation.predicted_text import PredictedText
from jax_engine.tokenization.tokenizer import Tokenizer


@dataclass(slots=True, eq=False)
class Request:
    """One request. It is built once, by `RequestChecks`, and can be accepted once.

    Attributes:
        prompt: Parsed and truncated.
        params: The request's own copy: the caller may change the original.
        group: The request as the scheduler sees it, with its id and its sequences.
        results: What it has produced that was not handed over yet.
        tokenizer: The engine's, for outputs that are made here.
        lora: What it says of its adapter, which `group` has; None: it has none.
        order: Its number among the requests of several engines, which its seed comes from if it
            has none; None: its engine counts.
        arrival_time: In seconds of the engine's clock; None: when it is accepted.
        timeout: In seconds after its arrival; None: no limit.
        metrics: When it arrived, got its first token and finished.
    """

    prompt: Prompt
    params: SamplingParams
    group: SequenceGroup
    results: Results | PooledResults
    tokenizer: Tokenizer | None
    lora: LoRARequest | None = None
    order: int | None = None
    arrival_time: float | None = None
    timeout: float | None = None
    metrics: RequestMetrics = field(default_factory=lambda: RequestMetrics(0.0))
    _assembler: Assembler | None = None

    @property
    def request_id(self) -> str:
        """Unique among unfinished requests."""
        return self.group.request_id

    @property
    def last_token_time(self) -> float | None:
        """When the last token of its output came; None if there is none."""
        if not self.results.counts_samples:  # all come at the end
            return self.metrics.finished_time if self.results.num_generated else None
        times = [one.token_time for one in self.group.seqs if one.token_time is not None]
        return max(times, default=None)

    def serve_as(
        self,
        request_id: str,
        *,
        arrival_time: float | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Sets its id, priority and times, which `check_service` has checked."""
        self.group.request_id, self.group.priority = request_id, priority
        self.arrival_time, self.timeout = arrival_time, timeout

    def arrive(self, now: float) -> float:
        """Sets and returns its arrival time, by the engine's clock: `now` if it has none."""
        arrival = now if self.arrival_time is None else self.arrival_time
        self.group.arrival_time = self.metrics.arrival_time = arrival
        return arrival

    def core_output(self, *, finished: bool) -> EngineCoreOutput | PoolingRequestOutput:
        """What is new since the last call; `finished` says that it is the last."""
        return self.results.core_output(self.metrics, finished=finished)

    def output(self, core_output: EngineCoreOutput | PoolingRequestOutput) -> AnyRequestOutput:
        """The output that what is new makes, for a reader in this process."""
        if isinstance(core_output, PoolingRequestOutput):
            return core_output
        if self._assembler is None:  # a reader in another process has one of its own
            arrival, tokenizer = self.metrics.arrival_time, self.tokenizer
            self._assembler = Assembler(
                self.request_id, self.prompt, self.params, tokenizer, arrival, self.lora
            )
        self._assembler.take(core_output)
        return self._assembler.read()


type RequestUpdate = tuple[Request, EngineCoreOutput | PoolingRequestOutput]


def is_last(core_output: EngineCoreOutput | PoolingRequestOutput) -> bool:
    """Whether nothing of the request follows.

    The one output of a pooling request is its last, even if it was cut short.
    """
    return isinstance(core_output, PoolingRequestOutput) or core_output.finished


def outputs_of(updates: Iterable[RequestUpdate]) -> list[AnyRequestOutput]:
    """The outputs that updates of requests make."""
    return [request.output(core_output) for request, core_output in updates]


_MOST = 2**63 - 1  # the largest priority
NO_TOKEN_ID = -1  # in place of the tokens of embeddings, where markers are looked for
logger = logging.getLogger("jax_engine")


class RequestChecks:
    """The checks that need to know the model.

    Args:
        vocab_size: Width of the model's logits, padding included.
        max_model_len: Longest prompt plus output.
        max_logprobs: Most log-probabilities per token; -1: the whole vocabulary.
        speculation: The engine's; None if it does not speculate.
        token_types: How many types of tokens the model knows.
        embeds: How embeddings are taken in place of tokens; None: they are refused.
        reasoning: What the model writes around its reasoning; None: it is not known.

    Attributes:
        text_length: Knows texts that cannot fit; None without a tokenizer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        vocab_size: int,
        max_model_len: int,
        eos_token_ids: frozenset[int],
        max_logprobs: int,
        speculation: SpeculativeConfig | None = None,
        token_types: int = 0,
        reasoning: ReasoningMarkers | None = None,
        embeds: EmbedsForm | None = None,
    ) -> None:
        self._tokenizer, self._token_types, self._embeds = tokenizer, token_types, embeds
        self.text_length = None if tokenizer is None else TextLength(tokenizer, max_model_len)
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._eos_token_ids = eos_token_ids
        self._max_logprobs = vocab_size if max_logprobs == -1 else max_logprobs
        self._speculation = speculation
        self._constraints = ConstraintBuilder(tokenizer, vocab_size, eos_token_ids, reasoning)

    def check(
        self,
        request_id: str,
        prompt: PromptInput,
        params: SamplingParams,
        lora: LoRARequest | None = None,
        adapter: Adapter | None = None,
    ) -> Request:
        """Runs all checks, and builds the request from their results.

        Args:
            lora, adapter: What the request says of its adapter, and the adapter itself.

        Raises:
            InvalidRequestError: The prompt or a parameter does not suit this model.
            RequestTooLargeError: A beam search is too wide for the sampler.
        """
        if not isinstance(params, SamplingParams):
            raise InvalidRequestError(
                f"sampling_params must be SamplingParams, got {type(params).__name__}"
            )
        own = copy(params)
        own.__post_init__()
        self._check_text(prompt, own)
        predicted = 0 if self._speculation is None else self._max_model_len
        sizes = self._vocab_size, predicted, self._token_types
        parsed = parse_prompt(prompt, self._tokenizer, *sizes, self._embeds)
        parsed = truncate_prompt(parsed, own.truncate_prompt_tokens, self._max_model_len)
        _check_length(own, len(parsed.token_ids))
        check_embeds(parsed, own)
        replay_trace(own, len(parsed.token_ids), self._max_model_len)
        self._check_tokens(own)
        self._check_logprobs(own)
        check_beams(own, self._eos_token_ids, self._vocab_size)
        guesses = max_drafts(own, self._speculation) if parsed.embeds is None else 0
        ids = parsed.token_ids if parsed.embeds is None else [NO_TOKEN_ID] * len(parsed.token_ids)
        group = SequenceGroup(
            request_id,
            parsed.token_ids,
            own,
            eos_token_ids=self._eos_token_ids,
            cache_salt=parsed.cache_salt,
            constraints=self._constraints.build(own, ids),
            max_drafts=guesses,
            prediction=PredictedText.of(parsed.prediction) if guesses else None,
            adapter=adapter,
            prompt_embeds=parsed.embeds,
        )
        results: Results | PooledResults
        if isinstance(own, PooledParams):
            results = PooledResults(parsed, own, group)
        else:
            results = Results(parsed, own, group, self._tokenizer)
        return Request(parsed, own, group, results, self._tokenizer, lora)

    def _check_text(self, prompt: PromptInput, params: SamplingParams) -> None:
        """Refuses a text that cannot fit before it is tokenised, which may take minutes."""
        text = prompt_text(prompt)
        if text is None or self.text_length is None or params.truncate_prompt_tokens is not None:
            return
        self.text_length.check(text, 0 if params.drops_output else 1)

    def _check_tokens(self, params: SamplingParams) -> None:
        for name in (
            "stop_token_ids",
            "logit_bias",
            "allowed_token_ids",
            "logprob_token_ids",
            "trace_decode_token_ids",
        ):
            for token in getattr(params, name) or ():
                if token >= self._vocab_size:
                    raise InvalidRequestError(
                        f"{name} must hold token ids in [0, {self._vocab_size - 1}], got {token}"
                    )
        if params.stop and self._tokenizer is None:
            raise InvalidRequestError(
                "stop needs text, but the engine has no tokenizer (skip_tokenizer_init=True): "
                "use stop_token_ids"
            )

    def _check_logprobs(self, params: SamplingParams) -> None:
        for name in ("logprobs", "prompt_logprobs"):
            wanted = getattr(params, name)
            if name == "logprobs" and params.logprob_token_ids:
                continue  # these have a limit of their own
            count = self._vocab_size if wanted == -1 else wanted or 0
            if count > self._max_logprobs:
                raise InvalidRequestError(
                    f"{name} must be at most max_logprobs ({self._max_logprobs}), got {wanted}: "
                    "build the engine with a larger max_logprobs, or -1"
                )


def check_embeds(prompt: Prompt, params: SamplingParams | PoolingParams) -> None:
    """
    Raises:
        InvalidRequestError: Log-probabilities of tokens are asked for, and the prompt has none.
    """
    wanted = getattr(params, "prompt_logprobs", None)
    if prompt.embeds is not None and wanted is not None:
        raise InvalidRequestError(
            f"prompt_logprobs must be None with prompt_embeds, got {wanted}: such a prompt has no "
            "tokens"
        )


def max_drafts(params: SamplingParams, speculation: SpeculativeConfig | None) -> int:
    """The most drafts of each of a request's sequences in a step.

    None are made where the user's own code sees each draw: it would see wrong ones. Nor are any
    for a prompt of embeddings, of which drafters know nothing.

    Raises:
        InvalidRequestError: A beam search asks for them.
    """
    if speculation is None or isinstance(params, PooledParams):
        return 0
    asked = params.num_speculative_tokens
    most = speculation.num_speculative_tokens
    assert most is not None, "its default was set"
    most = most if asked is None else min(asked, most)
    if most and params.use_beam_search:
        raise InvalidRequestError(
            f"num_speculative_tokens must be 0 with use_beam_search, got {asked} (the engine's "
            f"speculative_config has {speculation.num_speculative_tokens}): a beam draws "
            "candidates, which guesses cannot be compared with"
        )
    return 0 if params.logits_processors else most


def _check_length(params: SamplingParams, count: int) -> None:
    limit = params.max_prompt_tokens if isinstance(params, PooledParams) else None
    if limit is not None and count > limit:
        raise InvalidRequestError(
            f"prompt must have at most {limit} tokens, the longest text that this model was made "
            f"to embed (max_seq_length), got {count}: cut it, or embed its parts"
        )


def own_params[P](params: P) -> P:
    """A copy that nobody else changes; what are no parameters stays, to be refused later."""
    own: Any = params
    return own.clone() if isinstance(params, SamplingParams | PoolingParams) else params


def refuse_images(mm_processor_kwargs: Any) -> None:
    """
    Raises:
        InvalidRequestError: A multi-modal option is asked for.
    """
    if mm_processor_kwargs:
        raise InvalidRequestError(
            f"mm_processor_kwargs must be None, got {shown(mm_processor_kwargs)}: prompts are text"
        )


def check_request_id(request_id: object) -> None:
    """
    Raises:
        InvalidRequestError: It is not a string.
    """
    if not isinstance(request_id, str):
        raise InvalidRequestError(f"request_id must be a string, got {request_id!r}")


def check_service(
    policy: str, priority: int, timeout: float | None, arrival_time: float | None = None
) -> None:
    """
    Raises:
        InvalidRequestError: The priority is not a 64-bit integer, the timeout not a positive finite
            number, or the arrival time not a finite number.
    """
    check_integer("priority", priority, -_MOST, _MOST)
    if priority and policy != "priority":
        _warn_of_priority()
    if timeout is not None:
        check_number("timeout", timeout, 0.0, open_low=True)
    if arrival_time is not None:
        check_number("arrival_time", arrival_time)


@cache
def _warn_of_priority() -> None:
    """Warns once a process."""
    logger.warning(
        "priority has no effect with scheduling_policy='fcfs': build the engine with "
        "scheduling_policy='priority'"
    )
