"""What a request may ask of the sampler: names, defaults and ranges as in vLLM."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from numbers import Real

from jax_engine.errors import InvalidRequestError

MAX_LOGPROBS = 20  # the compiled sampler returns this many candidates; vLLM's default limit too
GREEDY_EPS = 1e-5  # a temperature below this is greedy, as in vLLM


class RequestOutputKind(Enum):
    """Which of a request's outputs `LLMEngine.step` returns."""

    CUMULATIVE = 0  # all the text so far, each step
    FINAL_ONLY = 2  # one output, when the request has finished


@dataclass(kw_only=True)
class SamplingParams:
    """How the tokens of one request are chosen and when it ends.

    Attributes:
        n: Outputs returned, >= 1.
        best_of: Sequences sampled, >= n; the n of highest cumulative log-probability are returned.
        presence_penalty: In [-2, 2]; subtracted once from tokens already in the output.
        frequency_penalty: In [-2, 2]; subtracted once for each occurrence in the output.
        repetition_penalty: > 0; logits of tokens in prompt or output are divided by it (if
            positive) or multiplied by it.
        temperature: >= 0; 0 is greedy.
        top_p: In (0, 1]; the boundary token is kept.
        top_k: >= 1, or 0 or -1 for all; ties with the k-th token are kept.
        min_p: In [0, 1], relative to the most probable token.
        seed: Tokens depend only on this and their position. None: drawn from the engine's seed.
        stop: Strings that end the output; not part of it unless `include_stop_str_in_output`.
        stop_token_ids: Token ids that end the output.
        ignore_eos: Go on past the end-of-sequence token.
        max_tokens: >= 1; None: as many as fit into `max_model_len`.
        min_tokens: >= 0; no end-of-sequence or stop token before this many.
        logprobs: In [0, 20]: log-probabilities (of the raw logits) of the sampled token and of
            this many most probable ones. None: none.
        logit_bias: Token id to a number added to its logit, clipped to [-100, 100].
        detokenize: False leaves `text` empty.
        skip_special_tokens: Leave special tokens out of the text.

    Raises:
        InvalidRequestError: A field is out of range; the message names it and the range.
    """

    n: int = 1
    best_of: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    logit_bias: dict[int, float] | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE

    def __post_init__(self) -> None:
        self._check_counts()
        self._check_filters()
        self._check_stops()
        self._check_logits()

    @property
    def num_samples(self) -> int:
        """Sequences to sample: `best_of`, or `n`."""
        return self.n if self.best_of is None else self.best_of

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_EPS

    @property
    def has_penalties(self) -> bool:
        return bool(
            self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        )

    @property
    def stop_strings(self) -> list[str]:
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)

    @property
    def needs_logprobs(self) -> bool:
        """Also when they only rank the `best_of` sequences."""
        return self.logprobs is not None or self.num_samples > self.n

    def _check_counts(self) -> None:
        _integer("n", self.n, 1)
        if self.best_of is not None:
            _integer("best_of", self.best_of, self.n, note=f" (n is {self.n})")
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 1)
        _integer("min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"min_tokens must be at most max_tokens ({self.max_tokens}), got {self.min_tokens}"
            )
        if self.logprobs is not None:
            _integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.seed is not None:
            _integer("seed", self.seed, -(2**63), 2**64 - 1)

    def _check_filters(self) -> None:
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _number("repetition_penalty", self.repetition_penalty, 0.0, open_low=True)
        _number("temperature", self.temperature, 0.0)
        _number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _number("min_p", self.min_p, 0.0, 1.0)
        _integer("top_k", self.top_k, -1)
        if self.greedy and self.num_samples > 1:
            raise InvalidRequestError(
                f"best_of (or n) must be 1 when temperature is 0 (greedy), got {self.num_samples}: "
                "all of them would be the same; set a temperature above 0"
            )

    def _check_stops(self) -> None:
        for text in self.stop_strings:
            if not isinstance(text, str) or not text:
                raise InvalidRequestError(f"stop must hold non-empty strings, got {text!r}")
        if self.stop_strings and not self.detokenize:
            raise InvalidRequestError("stop needs text: set detokenize=True, or use stop_token_ids")
        self.stop_token_ids = list(self.stop_token_ids or [])
        for token in self.stop_token_ids:
            _integer("stop_token_ids", token, 0)

    def _check_logits(self) -> None:
        if self.logit_bias is None:
            return
        clipped = {}
        for token, bias in self.logit_bias.items():
            try:
                token_id = int(token)  # JSON clients send the ids as strings, as OpenAI's API does
            except (TypeError, ValueError):
                raise InvalidRequestError(
                    f"logit_bias must have token ids as keys, got {token!r}"
                ) from None
            _integer("logit_bias", token_id, 0)
            _number("logit_bias", bias)
            clipped[token_id] = min(100.0, max(-100.0, float(bias)))
        self.logit_bias = clipped


def per_prompt(
    params: "SamplingParams | Sequence[SamplingParams] | None", num_prompts: int
) -> list[SamplingParams]:
    """One `SamplingParams` for each prompt: the same for all, or one each.

    Raises:
        InvalidRequestError: The number of params is not the number of prompts.
    """
    if params is None:
        params = SamplingParams()
    if isinstance(params, SamplingParams):
        return [params] * num_prompts
    given = list(params)
    if len(given) != num_prompts:
        raise InvalidRequestError(
            f"sampling_params must be one, or one for each of the {num_prompts} prompts, "
            f"got {len(given)}"
        )
    for i, one in enumerate(given):
        if not isinstance(one, SamplingParams):
            raise InvalidRequestError(
                f"sampling_params[{i}] must be SamplingParams, got {type(one).__name__}"
            )
    return given


def _integer(
    name: str, value: object, low: int, high: int | None = None, *, note: str = ""
) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidRequestError(f"{name} must be an integer, got {value!r}")
    number = int(value.__index__())  # NumPy's integers too
    if number < low or (high is not None and number > high):
        limit = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise InvalidRequestError(f"{name} must be {limit}{note}, got {number}")


def _number(
    name: str,
    value: object,
    low: float | None = None,
    high: float | None = None,
    *,
    open_low: bool = False,
) -> None:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidRequestError(f"{name} must be a number, got {value!r}")
    number = float(value)
    too_low = low is not None and (number <= low if open_low else number < low)
    if not isfinite(number) or too_low or (high is not None and number > high):
        bracket = "(" if open_low else "["
        limit = f"in {bracket}{low}, {'inf)' if high is None else f'{high}]'}"
        raise InvalidRequestError(
            f"{name} must be {'finite' if low is None else limit}, got {value!r}"
        )
