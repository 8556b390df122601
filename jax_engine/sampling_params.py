"""Sampling parameters of a request: names, defaults and ranges as in vLLM."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Self

from jax_engine.checks import shown
from jax_engine.errors import InvalidRequestError
from jax_engine.sampler_numbers import sampler_number, sampler_numbers
from jax_engine.sampling_checks import check_sampling_params, clipped_bias
from jax_engine.structured_outputs import StructuredOutputsParams
from jax_engine.typed_fields import check_types, named_fields

MAX_CANDIDATES = 64  # the sampler returns this many most probable tokens of a row
GREEDY_EPS = 1e-5  # a temperature below this is greedy, as in vLLM

EarlyStopping = bool | Literal["never"]
_LISTS = (
    "stop", "allowed_token_ids", "logprob_token_ids", "bad_words", "logits_processors",
    "trace_decode_token_ids",
)  # fmt: skip
# (output token ids, logits [V]) or (prompt token ids, output token ids, logits [V]) -> logits [V]
LogitsProcessor = Callable[..., Any]


def _packed_temperature(temperature: float) -> float:
    return 0.0 if temperature < GREEDY_EPS else temperature


def _packed_top_k(top_k: int) -> int:
    return min(max(top_k, 0), 2**31 - 1)


class RequestOutputKind(Enum):
    """Which of a request's outputs `LLMEngine.step` returns."""

    CUMULATIVE = 0  # the whole output so far, after each step that adds to it
    DELTA = 1  # only what is new, after each step that adds to it
    FINAL_ONLY = 2  # one output, when the request has finished


@named_fields(InvalidRequestError)
@dataclass(kw_only=True)
class SamplingParams:
    """How the tokens of one request are chosen and when it ends.

    Attributes:
        n: Outputs returned, in [1, 16384]. Those that do not fit at once run one after another.
        best_of: Sequences sampled, in [n, 16384]; the n of highest cumulative log-probability are
            returned.
        presence_penalty: In [-2, 2]; subtracted once from logits of tokens already in the output.
        frequency_penalty: In [-2, 2]; subtracted once for each occurrence in the output.
        repetition_penalty: > 0; logits of tokens in prompt or output are divided by it (if
            positive) or multiplied by it.
        temperature: >= 0; 0 is greedy.
        top_p: In (0, 1]; the boundary token is kept.
        top_k: >= 1, or 0 or -1 for all; ties with the k-th token are kept.
        min_p: In [0, 1], relative to the most probable token.
        top_n_sigma: >= 0; keeps tokens whose logits are at most this many standard deviations below
            the largest one. Forbidden tokens do not count. 0: all.
        seed: Random numbers depend only on this and the token's position. None, or -1: drawn from
            the engine's seed.
        stop: Strings that end the output; not part of it unless `include_stop_str_in_output`.
        stop_token_ids: Token ids that end the output.
        ignore_eos: Go on past the end-of-sequence token.
        max_tokens: >= 1; None: as many as fit into `max_model_len`.
        min_tokens: >= 0; the first tokens, this many, are no end-of-sequence or stop tokens, and
            stop strings that they complete are ignored.
        logprobs: Log-probabilities (of the raw logits) of the sampled token and of this many most
            probable ones; -1: of all. At most the engine's `max_logprobs`. None: none.
        prompt_logprobs: The same for each token of the prompt except the first.
        logprob_token_ids: Log-probabilities of these tokens and the sampled one only. `logprobs`
            must be None, or the number of these tokens.
        flat_logprobs: Return log-probabilities as `FlatLogprobs`, which needs fewer objects.
        logit_bias: Token id to a number added to its logit, clipped to [-100, 100].
        allowed_token_ids: No other token is ever sampled.
        bad_words: Strings that the output never completes, with or without a space before them.
        logits_processors: Callables that edit the logits of each token, before all other edits, on
            the host: (output token ids, logits) or (prompt token ids, output token ids, logits) to
            logits, NumPy float32 [V].
        structured_outputs: A grammar for the output (`guided_decoding` is its older name).
        truncate_prompt_tokens: Keep only the last tokens of the prompt, this many; -1: as many as
            `max_model_len` allows with one token of output.
        detokenize: False leaves `text` empty, and `decoded_token` of log-probabilities None.
        skip_special_tokens: Leave special tokens out of the text.
        spaces_between_special_tokens: No effect, for compatibility: the text has no such spaces.
        extra_args: For your own logits processors; plain data where the engine has a process of
            its own.
        trace_decode_token_ids: Replays these tokens as the output, with the log-probabilities that
            the model gives them; nothing else ends it.
        num_speculative_tokens: The most guesses for this request in one step, if the engine has a
            `speculative_config`; 0: none. At most as many as that says; None: as many.
        skip_clone: `clone` copies only this object, not the objects in its fields.
        use_beam_search: Beam search of width `best_of` (or `n`), in the same batch as other
            requests. A temperature above 0 divides its logits.
        length_penalty: For beam search: see `BeamSearchParams`.
        early_stopping: For beam search: see `BeamSearchParams`.

    Raises:
        InvalidRequestError: A field is out of range or contradicts another; the message names it.
    """

    n: int = 1
    best_of: int | None = None
    presence_penalty: float = sampler_number(0.0, low=-2.0, high=2.0)
    frequency_penalty: float = sampler_number(0.0, low=-2.0, high=2.0)
    repetition_penalty: float = sampler_number(1.0, low=0.0, open_low=True)
    temperature: float = sampler_number(1.0, low=0.0, packed=_packed_temperature)
    top_p: float = sampler_number(1.0, low=0.0, high=1.0, open_low=True, is_filter=True)
    top_k: int = sampler_number(0, low=-1, packed=_packed_top_k, is_filter=True)
    min_p: float = sampler_number(0.0, low=0.0, high=1.0, is_filter=True)
    top_n_sigma: float = sampler_number(0.0, low=0.0, is_filter=True)
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    flat_logprobs: bool = False
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    logits_processors: list[LogitsProcessor] | None = None
    structured_outputs: StructuredOutputsParams | None = None
    guided_decoding: StructuredOutputsParams | None = None
    truncate_prompt_tokens: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    extra_args: dict[str, Any] | None = None
    trace_decode_token_ids: list[int] | None = None
    num_speculative_tokens: int | None = None
    skip_clone: bool = False
    use_beam_search: bool = False
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE

    def __post_init__(self) -> None:
        if isinstance(self.logit_bias, Mapping):
            self.logit_bias = clipped_bias(self.logit_bias)
        check_types(self, InvalidRequestError)
        if self.guided_decoding is not None:
            self.structured_outputs, self.guided_decoding = self.guided_decoding, None
        self.stop_token_ids = list(self.stop_token_ids or [])
        for name in _LISTS:  # the caller may change its own lists later
            value = getattr(self, name)
            if isinstance(value, list):
                setattr(self, name, list(value))
        check_sampling_params(self)
        if self.seed == -1:
            self.seed = None

    @classmethod
    def from_optional(cls, **settings: Any) -> Self:
        """Makes params in which None for a number means its default."""
        none_is_default = {"n", "min_tokens", *sampler_numbers(cls)}
        given = {
            name: value
            for name, value in settings.items()
            if value is not None or name not in none_is_default
        }
        return cls(**given)

    def clone(self) -> Self:
        """A copy that shares nothing but `logits_processors` with this one."""
        if self.skip_clone:
            return copy(self)
        return deepcopy(self, {id(one): one for one in self.logits_processors or ()})

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
    def wants_prompt(self) -> bool:
        """Whether each prompt token has an output of its own, so that all must be computed."""
        return self.prompt_logprobs is not None

    @property
    def drops_output(self) -> bool:
        """Whether the token that ends it is dropped, so that it needs no room: never."""
        return False

    @property
    def stop_strings(self) -> list[str]:
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)

    @property
    def needs_logits(self) -> bool:
        """Whether its log-probabilities are computed on the host, from whole rows of logits."""
        wide = self.logprobs is not None and not 0 <= self.logprobs <= MAX_CANDIDATES
        return wide or self.logprob_token_ids is not None

    @property
    def gives_deltas(self) -> bool:
        """Whether outputs are deltas; not in a beam search, whose tokens are final at its end."""
        return self.output_kind is RequestOutputKind.DELTA and not self.use_beam_search

    @property
    def is_ranked(self) -> bool:
        """Whether only the end tells which sequences are returned: beams, and `best_of`."""
        return self.use_beam_search or self.num_samples > self.n

    @property
    def needs_logprobs(self) -> bool:
        """Whether log-probabilities are computed, also if only to rank `best_of` or beams."""
        wanted = self.logprobs is not None or self.logprob_token_ids is not None
        return wanted or self.is_ranked


def per_prompt(
    params: "SamplingParams | Sequence[SamplingParams] | None", num_prompts: int
) -> list[SamplingParams]:
    """One `SamplingParams` for each prompt: the same for all, or one each.

    Raises:
        InvalidRequestError: As for `one_each`.
    """
    if params is None:
        params = SamplingParams()
    return one_each("sampling_params", params, SamplingParams, num_prompts)


def one_each[P](name: str, params: P | Sequence[P], kind: type[P], num_prompts: int) -> list[P]:
    """One object of a class for each prompt: the same for all, or one each.

    Raises:
        InvalidRequestError: One is of another class, or their number is not that of the prompts.
    """
    if isinstance(params, kind):
        return [params] * num_prompts
    if isinstance(params, str | bytes | Mapping) or not isinstance(params, Sequence):
        raise InvalidRequestError(
            f"{name} must be {kind.__name__}, or a list of one for each prompt, got {shown(params)}"
        )
    if len(params) != num_prompts:
        raise InvalidRequestError(
            f"{name} must be one, or one for each of the {num_prompts} prompts, got {len(params)}"
        )
    for i, one in enumerate(params):
        if not isinstance(one, kind):
            raise InvalidRequestError(
                f"{name}[{i}] must be {kind.__name__}, got {type(one).__name__}"
            )
    return list(params)
