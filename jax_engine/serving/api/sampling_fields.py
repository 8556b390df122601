"""The fields of requests that become `SamplingParams`, with OpenAI's and vLLM's names."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from jax_engine.checks import shown
from jax_engine.errors import InvalidRequestError
from jax_engine.guided.compiler import check_size
from jax_engine.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from jax_engine.serving.api.api_errors import invalid
from jax_engine.serving.api.request_fields import Fields, Request

# Of vLLM's, with or without options. Any of them means this engine's own, llguidance.
_BACKEND = r"^(auto|guidance|llguidance|lm-format-enforcer|outlines|xgrammar)(:.*)?$"
MAX_KEYS = 5  # of a dict that an error names
GUIDED = ("json", "regex", "choice", "grammar")  # vLLM's older names have "guided_" before them


class StreamOptions(Fields):
    """What a stream says beside its text. Padding against eavesdroppers is not written."""

    harmless: ClassVar[frozenset[str]] = frozenset({"include_obfuscation"})
    include_usage: bool = False
    continuous_usage_stats: bool = False


class JsonSchema(Fields):
    """The schema of `response_format`."""

    name: str = "output"
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Fields):
    """The form of the answer.

    Attributes:
        structures, triggers: a structural tag, in vLLM's older form.
        format: one in the newer form.
    """

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchema | None = None
    structures: list[dict[str, Any]] | None = None
    triggers: list[str] | None = None
    format: dict[str, Any] | None = None


class StructuredOutputs(Fields):
    """As `StructuredOutputsParams`."""

    json_: str | dict[str, Any] | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | dict[str, Any] | None = None


XArg = str | int | float
MAX_WORDS = 1024  # each is looked for behind each token
MAX_BIASES = 1 << 16
Words = Annotated[list[str], Field(max_length=MAX_WORDS)]


class SamplingFields(Request):
    """The fields of all endpoints that generate; None is the model's default.

    Attributes:
        vllm_xargs: `SamplingParams.extra_args`, which logits processors of the engine read.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    top_n_sigma: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | Words | None = None
    stop_token_ids: list[int] | None = None
    bad_words: Words | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=MAX_BIASES)] | None = None
    allowed_token_ids: list[int] | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_decoding_backend: Annotated[str, Field(pattern=_BACKEND)] | None = None
    stream: bool = False
    priority: int = 0
    timeout: float | None = None
    cache_salt: str | None = None
    request_id: str | None = None
    num_speculative_tokens: int | None = None
    thinking_token_budget: int | None = None
    vllm_xargs: dict[str, XArg | list[XArg]] | None = None

    def engine_names(self) -> dict[str, str]:
        """As `Body.engine_names`."""
        for way in GUIDED:
            if getattr(self, f"guided_{way}") is not None:
                names = (f"structured_outputs.{way}", "structured_outputs")
                return dict.fromkeys(names, f"guided_{way}")
        return {}


class SamplingRequest(SamplingFields):
    """The fields that completions and chats share.

    Attributes:
        truncation_side: where `truncate_prompt_tokens` cuts; None: at the left, the beginning.
        logprob_token_ids: whose log-probabilities are wanted, in place of the most probable
            tokens'; None or []: nobody's.
        return_tokens_as_token_ids: whether log-probabilities name tokens `token_id:5`.
    """

    n: int = 1
    best_of: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: Literal["left", "right"] | None = None
    use_beam_search: bool | None = None
    response_format: ResponseFormat | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False

    def engine_names(self) -> dict[str, str]:
        """As `Body.engine_names`."""
        if _of_format(self.response_format) is None:
            return super().engine_names()
        form = self.response_format
        is_tag = form is not None and form.type == "structural_tag"
        name = "response_format" if is_tag else "response_format.json_schema.schema"
        return {"structured_outputs": name}

    @property
    def usage_at_end(self) -> bool:
        """Whether a stream ends with what was used."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def usage_always(self) -> bool:
        """Whether each event says what its choice has used: as in vLLM, only if the end does."""
        options = self.stream_options
        return self.usage_at_end and options is not None and options.continuous_usage_stats

    def check_stream(self) -> None:
        """
        Raises:
            ApiError: a field does not go with the request's being a stream, or not.
        """
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options", "stream_options must only be given with stream=true")
        if self.stream and self.prompt_logprobs is not None:
            raise invalid("prompt_logprobs", "prompt_logprobs must not be given with stream=true")
        if self.stream and self.best_of is not None and self.best_of > self.n:
            raise invalid("best_of", "best_of must not be above n with stream=true")

    def sampling_params(
        self, defaults: dict[str, Any], *, logprobs: int | None, **fields: Any
    ) -> SamplingParams:
        """The engine's parameters.

        Args:
            defaults: those of the model, which the request's fields replace.
            logprobs: how many most probable tokens the request asks for; None: for none.
            fields: others that are not called alike in both; None is the default.

        Raises:
            ApiError, InvalidRequestError: a field is out of range, or contradicts another.
        """
        given = {name: getattr(self, name) for name in _SAME}
        if self.logprob_token_ids:
            self._check_logprob_tokens(logprobs)
        else:
            given |= {"logprob_token_ids": None, "logprobs": logprobs}
        given |= {"logit_bias": _bias(self.logit_bias), "structured_outputs": _grammar(self)}
        given |= {"extra_args": self.vllm_xargs} | fields
        kind = RequestOutputKind.DELTA if self.stream else RequestOutputKind.FINAL_ONLY
        chosen = {name: value for name, value in given.items() if value is not None}
        return SamplingParams(**(defaults | chosen), output_kind=kind)

    def _check_logprob_tokens(self, logprobs: int | None) -> None:
        name = "logprob_token_ids"
        if logprobs is None:
            raise invalid(name, f"{name} must only be given with logprobs")
        if self.use_beam_search:
            raise invalid(name, f"{name} must not be given with use_beam_search")

    def shown_logprobs(self, asked: int | None) -> int | None:
        """How many of a token's log-probabilities are shown; None: all that the engine gives.

        Args:
            asked: what the request says of it; -1: all.
        """
        return None if self.logprob_token_ids or asked == -1 else asked


_SAME = tuple(
    name
    for name in SamplingRequest.model_fields
    if name in SamplingParams.__dataclass_fields__
    and name not in ("logit_bias", "structured_outputs")
)


def _bias(bias: dict[str, float] | None) -> dict[int, float] | None:
    if bias is None:
        return None
    found, others = {}, []
    for token, value in bias.items():
        try:
            found[int(token)] = value
        except ValueError:
            others.append(shown(token))
    if others:
        more = f" and {len(others) - MAX_KEYS} more" if len(others) > MAX_KEYS else ""
        got = ", ".join(others[:MAX_KEYS]) + more
        raise InvalidRequestError(f"logit_bias must have token ids as its keys, got {got}")
    return found


def _grammar(request: SamplingRequest) -> StructuredOutputsParams | None:
    """The one grammar that a request gives, in any of the three ways of writing it.

    Raises:
        InvalidRequestError: it is invalid, or larger than a client's may be.
    """
    ways: dict[str, dict[str, Any]] = {}
    outputs = request.structured_outputs
    if outputs is not None:
        ways["structured_outputs"] = outputs.model_dump(by_alias=True, exclude_none=True)
    guided = {name: getattr(request, f"guided_{name}") for name in GUIDED}
    ways |= {f"guided_{name}": {name: one} for name, one in guided.items() if one is not None}
    form = _of_format(request.response_format)
    if form is not None:
        ways["response_format"] = form
    if len(ways) > 1:
        names = " and ".join(ways)
        raise invalid(next(iter(ways)), f"{names} must not be given together: each is a grammar")
    for fields in ways.values():
        params = StructuredOutputsParams(**fields)
        check_size(params)
        return params
    return None


def _of_format(form: ResponseFormat | None) -> dict[str, Any] | None:
    if form is None:
        return None
    for name in ("structures", "triggers", "format"):
        if form.type != "structural_tag" and getattr(form, name) is not None:
            where = f"response_format.{name}"
            message = f"{where} must only be given with type 'structural_tag', got {form.type!r}"
            raise invalid(where, message)
    if form.type == "text":
        return None
    if form.type == "json_object":
        return {"json_object": True}
    if form.type == "structural_tag":
        return {"structural_tag": form.model_dump(exclude_none=True)}
    if form.json_schema is None or form.json_schema.schema_ is None:
        raise invalid("response_format", "response_format.json_schema.schema is missing")
    return {"json": form.json_schema.schema_}
