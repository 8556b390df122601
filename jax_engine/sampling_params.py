"""What a request may ask of the sampler: names, defaults and ranges as in vLLM."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from jax_engine.checks import check_integer, check_number
from jax_engine.errors import InvalidRequestError
from jax_engine.structured_outputs import StructuredOutputsParams

MAX_LOGPROBS = 20  # vLLM's default limit
GREEDY_EPS = 1e-5  # a temperature below this is greedy, as in vLLM

EarlyStopping = bool | Literal["never"]
# (output token ids, logits [V]) or (prompt token ids, output token ids, logits [V]) -> logits [V]
LogitsProcessor = Callable[..., Any]


class RequestOutputKind(Enum):
    """Which of a request's outputs `LLMEngine.step` returns."""

    CUMULATIVE = 0  # all the text so far, each step
    DELTA = 1  # what is new, each step that has something new
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
        prompt_logprobs: In [0, 20]: the same for each token of the prompt but the first.
        logit_bias: Token id to a number added to its logit, clipped to [-100, 100].
        allowed_token_ids: No other token is ever sampled.
        bad_words: Strings that the output never completes, with or without a space before them.
        logits_processors: Callables that edit the logits of each token before all else, on the
            host: (output token ids, logits) or (prompt token ids, output token ids, logits) to
            logits, NumPy float32 [V].
        structured_outputs: What the output must look like (`guided_decoding` is its older name).
        truncate_prompt_tokens: Keep only this many tokens of the prompt, the last ones; -1: as many
            as `max_model_len` allows, with one of output.
        detokenize: False leaves `text` empty.
        skip_special_tokens: Leave special tokens out of the text.
        use_beam_search: Beam search of width `best_of` (or `n`), in the same batch as all else;
            with temperature 0, or one that the logits are divided by.
        length_penalty: With beam search: see `BeamSearchParams`.
        early_stopping: With beam search: see `BeamSearchParams`.

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
    prompt_logprobs: int | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    logits_processors: list[LogitsProcessor] | None = None
    structured_outputs: StructuredOutputsParams | None = None
    guided_decoding: StructuredOutputsParams | None = None
    truncate_prompt_tokens: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    use_beam_search: bool = False
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE

    def __post_init__(self) -> None:
        self._check_counts()
        self._check_filters()
        self._check_stops()
        self._check_logits()
        self._check_constraints()
        self._check_beams()

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
        """Also when they only rank the `best_of` sequences, or the beams."""
        return self.logprobs is not None or self.num_samples > self.n or self.use_beam_search

    @property
    def _takes_back(self) -> bool:
        """Whether what is streamed could turn out not to be part of the result."""
        deltas = self.output_kind is RequestOutputKind.DELTA and not self.use_beam_search
        return deltas and self.num_samples > self.n

    def _check_counts(self) -> None:
        check_integer("n", self.n, 1)
        if self.best_of is not None:
            check_integer("best_of", self.best_of, self.n, note=f" (n is {self.n})")
            if self._takes_back:
                raise InvalidRequestError(
                    f"best_of must be n ({self.n}) with RequestOutputKind.DELTA, got "
                    f"{self.best_of}: which ones are returned is known only at the end"
                )
        if self.max_tokens is not None:
            check_integer("max_tokens", self.max_tokens, 1)
        check_integer("min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"min_tokens must be at most max_tokens ({self.max_tokens}), got {self.min_tokens}"
            )
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 0, MAX_LOGPROBS)
        if self.truncate_prompt_tokens is not None and self.truncate_prompt_tokens != -1:
            check_integer("truncate_prompt_tokens", self.truncate_prompt_tokens, 1)
        if self.seed is not None:
            check_integer("seed", self.seed, -(2**63), 2**64 - 1)

    def _check_filters(self) -> None:
        check_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        check_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        check_number("repetition_penalty", self.repetition_penalty, 0.0, open_low=True)
        check_number("temperature", self.temperature, 0.0)
        check_number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        check_number("min_p", self.min_p, 0.0, 1.0)
        check_integer("top_k", self.top_k, -1)
        if self.greedy and self.num_samples > 1 and not self.use_beam_search:
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
            check_integer("stop_token_ids", token, 0)

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
            check_integer("logit_bias", token_id, 0)
            check_number("logit_bias", bias)
            clipped[token_id] = min(100.0, max(-100.0, float(bias)))
        self.logit_bias = clipped

    def _check_constraints(self) -> None:
        if self.allowed_token_ids is not None:
            self.allowed_token_ids = list(self.allowed_token_ids)
            for token in self.allowed_token_ids:
                check_integer("allowed_token_ids", token, 0)
            if not self.allowed_token_ids:
                raise InvalidRequestError("allowed_token_ids must hold at least 1 id, got none")
        for word in self.bad_words or ():
            if not isinstance(word, str) or not word.strip():
                raise InvalidRequestError(f"bad_words must hold non-empty strings, got {word!r}")
        for one in self.logits_processors or ():
            if not callable(one):
                raise InvalidRequestError(f"logits_processors must hold callables, got {one!r}")
        if self.guided_decoding is not None:
            self.structured_outputs, self.guided_decoding = self.guided_decoding, None
        guide = self.structured_outputs
        if guide is None:
            return
        if not isinstance(guide, StructuredOutputsParams):
            raise InvalidRequestError(
                f"structured_outputs must be StructuredOutputsParams, got {type(guide).__name__}"
            )
        for name in ("ignore_eos", "min_tokens"):
            if getattr(self, name):
                raise InvalidRequestError(
                    f"{name} must be left out with structured_outputs, got {getattr(self, name)}: "
                    "an output that is complete can only end"
                )

    def _check_beams(self) -> None:
        # So that no length to this power leaves the range of floats
        check_number("length_penalty", self.length_penalty, -32.0, 32.0)
        if not any(self.early_stopping is one for one in (True, False, "never")):
            raise InvalidRequestError(
                f"early_stopping must be True, False or 'never', got {self.early_stopping!r}"
            )
        if not self.use_beam_search:
            return
        for name, off in (("top_p", (1.0,)), ("top_k", (0, -1)), ("min_p", (0.0,))):
            if getattr(self, name) not in off:
                raise InvalidRequestError(
                    f"{name} must be {off[0]} with use_beam_search, got {getattr(self, name)}"
                )
        for name in ("stop", "logprobs"):
            if getattr(self, name) not in (None, []):
                raise InvalidRequestError(
                    f"{name} must be left out with use_beam_search, got {getattr(self, name)!r}"
                )


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
