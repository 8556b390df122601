"""Sampling parameters of a request, and their checks: names, defaults and ranges as in vLLM.

`SamplingParams` holds what one request asks for, `StructuredOutputsParams` the grammar of a guided
output, `BeamSearchParams` what `LLM.beam_search` takes. The checks here need no model: ranges of
fields, and contradictions between them.

The numbers of the sampler are declared once, as fields of `SamplingParams`, by `sampler_number`. A
declaration gives a number's default, its range, whether it is a filter, and how it is packed for
the device. The checks, `SamplingParams.from_optional`, the defaults that come with a model, and the
packed row of a request (`jax_engine/sampling/sampling_inputs.py`) read these declarations. Besides
its declaration, a new number needs an array in `SamplingInputs`, and its rule in
`reference/sampling.py`, in `jax_engine/sampling/` and in `cpu_kernels/sampling/`.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cache
from typing import Any, Literal, Self

from jax_engine.checks import check_integer, check_number, check_types, named_fields, shown
from jax_engine.errors import InvalidRequestError


@named_fields(InvalidRequestError)
@dataclass(kw_only=True)
class StructuredOutputsParams:
    """Constrains the output of a request; names as in vLLM. Exactly one field is set.

    Attributes:
        json: A JSON schema, as a dict or as text; a pydantic model's `model_json_schema()`.
        regex: The whole output matches it.
        choice: The output is one of these strings.
        grammar: A context-free grammar, Lark or EBNF; `root` or `start` is its first rule.
        json_object: True: any JSON object.
        structural_tag: Free text in which tagged parts have grammars, in either of vLLM's forms, as
            a dict or as text (`jax_engine.guided.structural_tag`).

    Raises:
        InvalidRequestError: None or several are set, one is of the wrong type, or `choice` holds no
            string or an empty one.
    """

    json: str | Mapping[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_types(self, InvalidRequestError, "structured_outputs.")
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        given = [name for name, value in values.items() if value is not None and value is not False]
        if len(given) != 1:
            raise InvalidRequestError(
                "structured_outputs must set exactly one of json, regex, choice, grammar, "
                f"json_object and structural_tag, got {', '.join(given) or 'none'}"
            )
        if self.choice is not None and not all([*self.choice, self.choice]):
            raise InvalidRequestError(
                "structured_outputs.choice must be a list of non-empty strings, at least one, got "
                f"{shown(self.choice)}"
            )


_KEY = "sampler_number"


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class SamplerNumber:
    """How one number of the sampler is declared.

    Attributes:
        default: An int if the number must be an integer, else a float.
        low: The smallest value; with `open_low`, a lower bound that is itself too small.
        high: The largest value; None: any finite one.
        is_filter: Whether it excludes tokens. A filter is off if it is packed like its default.
        packed: Converts a value in range to the int32 or float32 that the device gets.
    """

    default: float
    low: float
    high: float | None
    open_low: bool
    is_filter: bool
    packed: Callable[[Any], float]

    @property
    def is_integer(self) -> bool:
        return isinstance(self.default, int)

    def check(self, name: str, value: object) -> None:
        """
        Raises:
            InvalidRequestError: The value is out of range; the message names both.
        """
        if self.is_integer:
            high = None if self.high is None else int(self.high)
            check_integer(name, value, int(self.low), high)
        else:
            check_number(name, value, self.low, self.high, open_low=self.open_low)

    def check_off(self, name: str, value: float, mode: str) -> None:
        """
        Raises:
            InvalidRequestError: It is a filter and is on, which `mode` does not allow.
        """
        if self.is_filter and self.packed(value) != self.packed(self.default):
            raise InvalidRequestError(f"{name} must be {self.default} with {mode}, got {value}")


def sampler_number[N: (int, float)](
    default: N,
    *,
    low: N,
    high: N | None = None,
    open_low: bool = False,
    is_filter: bool = False,
    packed: Callable[[N], N] = _unchanged,
) -> N:
    """A dataclass field with a `SamplerNumber`, which explains the arguments."""
    number = SamplerNumber(default, low, high, open_low, is_filter, packed)
    return field(default=default, metadata={_KEY: number})


def sampler_numbers(cls: type) -> dict[str, SamplerNumber]:
    """The sampler's numbers that a dataclass declares, by name, in order."""
    return _declared(cls)


@cache
def _declared(cls: type) -> dict[str, SamplerNumber]:
    return {one.name: one.metadata[_KEY] for one in fields(cls) if _KEY in one.metadata}


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
    """What `step` returns: an output so far (CUMULATIVE), what is new (DELTA), or its end."""

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
        thinking_token_budget: >= 0; after so many tokens of reasoning its end is forced, whatever
            else would forbid that token, but for a grammar. -1, or None: no limit. The engine's
            `reasoning_config` says what begins and ends reasoning.
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
    thinking_token_budget: int | None = None
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
        if self.thinking_token_budget == -1:
            self.thinking_token_budget = None

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


@named_fields(InvalidRequestError)
@dataclass
class BeamSearchParams:
    """Beam search (paper, section 4.4), with vLLM's names.

    Attributes:
        beam_width: Beams kept from step to step, and outputs returned; >= 1.
        max_tokens: Longest output, >= 1.
        ignore_eos: Go on past the end-of-sequence token.
        temperature: Divides the logits; 0 leaves them as they are.
        length_penalty: The score of a finished beam is its cumulative log-probability divided by
            its length to this power: above 0 longer beams are favoured.
        early_stopping: When to stop, once `beam_width` beams have finished. True: at once. False:
            when no running beam scores better at its current length. "never": when none can at
            any length.

    A search of width 1 gives the greedy output, except with "never" and a positive length penalty:
    then it may pass an end-of-sequence token and find a longer output with a better score.

    Raises:
        InvalidRequestError: `beam_width` is below 1; for other fields, by `sampling_params`.
    """

    beam_width: int
    max_tokens: int = 16
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_types(self, InvalidRequestError)
        check_integer("beam_width", self.beam_width, 1)

    def sampling_params(self) -> SamplingParams:
        """The same search as a request, which can share a batch with any others."""
        return SamplingParams(
            use_beam_search=True,
            n=self.beam_width,
            max_tokens=self.max_tokens,
            ignore_eos=self.ignore_eos,
            temperature=self.temperature,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
            output_kind=RequestOutputKind.FINAL_ONLY,
            num_speculative_tokens=0,
        )


MAX_LOGPROB_TOKEN_IDS = 128  # vLLM's limit
MAX_SAMPLES = 16384  # as vLLM's VLLM_MAX_N_SEQUENCES


def check_sampling_params(params: SamplingParams) -> None:
    """
    Raises:
        InvalidRequestError: A field is out of range or contradicts another; the message names it.
    """
    _check_counts(params)
    _check_sampler(params)
    _check_stops(params)
    _check_constraints(params)
    _check_guide(params)
    _check_beams(params)


def clipped_bias(logit_bias: Mapping[int, float]) -> dict[int, float]:
    """Converts token ids to integers, and clips biases to [-100, 100].

    Raises:
        InvalidRequestError: A key is not a token id, or a value not a finite number.
    """
    clipped = {}
    for token, bias in logit_bias.items():
        try:
            token_id = int(token)  # clients of OpenAI's API send ids as strings
        except (TypeError, ValueError):
            raise InvalidRequestError(
                f"logit_bias must have token ids as keys, got {token!r}"
            ) from None
        check_integer("logit_bias", token_id, 0)
        check_number("logit_bias", bias)
        clipped[token_id] = min(100.0, max(-100.0, float(bias)))
    return clipped


def _check_counts(params: SamplingParams) -> None:
    check_integer("n", params.n, 1)
    if params.best_of is not None:
        check_integer("best_of", params.best_of, params.n, note=f" (n is {params.n})")
        _check_deltas(params)
    if params.num_samples > MAX_SAMPLES:
        raise InvalidRequestError(
            f"{_samples_name(params)} must be at most {MAX_SAMPLES}, got {params.num_samples}: "
            "ask in several requests, with a seed each"
        )
    if params.max_tokens is not None:
        check_integer("max_tokens", params.max_tokens, 1)
    check_integer("min_tokens", params.min_tokens, 0)
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise InvalidRequestError(
            f"min_tokens must be at most max_tokens ({params.max_tokens}), got {params.min_tokens}"
        )
    for name in ("logprobs", "prompt_logprobs", "thinking_token_budget"):
        if getattr(params, name) is not None:
            check_integer(name, getattr(params, name), -1)
    _check_logprob_tokens(params)
    if params.truncate_prompt_tokens is not None and params.truncate_prompt_tokens != -1:
        check_integer("truncate_prompt_tokens", params.truncate_prompt_tokens, 1)
    if params.num_speculative_tokens is not None:
        check_integer("num_speculative_tokens", params.num_speculative_tokens, 0)
    if params.seed is not None:
        check_integer("seed", params.seed, -(2**63), 2**64 - 1)


def _check_logprob_tokens(params: SamplingParams) -> None:
    tokens = params.logprob_token_ids
    if tokens is None:
        return
    for token in tokens:
        check_integer("logprob_token_ids", token, 0)
    if not tokens or len(tokens) > MAX_LOGPROB_TOKEN_IDS:
        raise InvalidRequestError(
            f"logprob_token_ids must hold 1 to {MAX_LOGPROB_TOKEN_IDS} ids, got {len(tokens)}"
        )
    if params.logprobs not in (None, len(tokens)):
        raise InvalidRequestError(
            f"logprobs must be left out with logprob_token_ids, or their number ({len(tokens)}), "
            f"got {params.logprobs}"
        )


def _check_deltas(params: SamplingParams) -> None:
    """Refuses deltas with best_of > n: a streamed sample might not be among the results."""
    if params.gives_deltas and params.num_samples > params.n:
        raise InvalidRequestError(
            f"best_of must be n ({params.n}) with RequestOutputKind.DELTA, got "
            f"{params.best_of}: which ones are returned is known only at the end"
        )


def _samples_name(params: SamplingParams) -> str:
    """The field that says how many samples there are."""
    return "n" if params.best_of is None else "best_of"


def _check_sampler(params: SamplingParams) -> None:
    for name, number in sampler_numbers(type(params)).items():
        number.check(name, getattr(params, name))
    if params.greedy and params.num_samples > 1 and not params.use_beam_search:
        raise InvalidRequestError(
            f"{_samples_name(params)} must be 1 when temperature is 0 (greedy), got "
            f"{params.num_samples}: all of them would be the same; set a temperature above 0"
        )


def _check_stops(params: SamplingParams) -> None:
    for text in params.stop_strings:
        if not text:
            raise InvalidRequestError("stop must hold non-empty strings, got ''")
    if params.stop_strings and not params.detokenize:
        raise InvalidRequestError("stop needs text: set detokenize=True, or use stop_token_ids")
    for token in params.stop_token_ids or ():
        check_integer("stop_token_ids", token, 0)


def _check_constraints(params: SamplingParams) -> None:
    if params.allowed_token_ids is not None:
        for token in params.allowed_token_ids:
            check_integer("allowed_token_ids", token, 0)
        if not params.allowed_token_ids:
            raise InvalidRequestError("allowed_token_ids must hold at least 1 id, got none")
    for word in params.bad_words or ():
        if not word.strip():
            raise InvalidRequestError(f"bad_words must hold non-empty strings, got {word!r}")


def _check_guide(params: SamplingParams) -> None:
    if params.structured_outputs is None:
        return
    for name in ("ignore_eos", "min_tokens"):
        if getattr(params, name):
            raise InvalidRequestError(
                f"{name} must be left out with structured_outputs, got {getattr(params, name)}: "
                "an output that is complete can only end"
            )


def _check_beams(params: SamplingParams) -> None:
    # Any length to this power is then within the range of floats
    check_number("length_penalty", params.length_penalty, -32.0, 32.0)
    if not params.use_beam_search:
        return
    for name, number in sampler_numbers(type(params)).items():
        number.check_off(name, getattr(params, name), "use_beam_search")
    for name in ("stop", "logprobs", "logprob_token_ids", "thinking_token_budget"):
        if getattr(params, name) not in (None, [], -1):
            raise InvalidRequestError(
                f"{name} must be left out with use_beam_search, got {getattr(params, name)!r}"
            )
