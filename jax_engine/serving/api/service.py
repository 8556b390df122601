"""What all endpoints share: the engine, the names of its model, and limits."""

import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, Literal

from msgspec import UNSET, UnsetType
from starlette.middleware import Middleware
from starlette.requests import Request as HttpRequest

from jax_engine.checks import shown
from jax_engine.engine.requests.prompts import PromptInput
from jax_engine.errors import RequestTooLargeError
from jax_engine.lora.adapter_templates import own_template
from jax_engine.outputs import PoolingRequestOutput, RequestMetrics, RequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import SamplingParams
from jax_engine.serving.api.api_errors import ApiError, invalid
from jax_engine.serving.api.endpoint_requests import PooledRequest
from jax_engine.serving.api.request_fields import Request
from jax_engine.serving.api.request_timings import Timings
from jax_engine.serving.api.sampling_fields import SamplingRequest, StreamOptions
from jax_engine.serving.api.turn_parsing import TurnFormat
from jax_engine.serving.async_llm import AsyncLLM
from jax_engine.serving.request_log import CLIENT_REQUEST, ClientRequest
from jax_engine.serving.served_adapters import Adapters, LoRAModule
from jax_engine.serving.text_encoder import TextEncoder
from jax_engine.tokenization.chat_content import ContentFormat
from jax_engine.tokenization.tokenizer import Tokenizer

MAX_NAMED = 20  # models that an error lists
MAX_ID = 256  # characters of an id that a client chooses


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """
    Attributes:
        names: what clients may call the model; the first one is its name in answers.
        lora_modules: adapters that are offered from the start.
        chat_template: Jinja, in place of the model's own.
        content_format: how contents are given to the template; "auto": as it reads them.
        chat_template_kwargs: options of the template for requests that do not say otherwise.
        reasoning_efforts: what the template is told in place of a request's `reasoning_effort`.
        exclude_forbidden_tools: whether templates are not told of tools if tool_choice is "none".
        trust_request_chat_template: whether requests may bring templates. A template can take any
            time and memory.
        tool_call_parser, reasoning_parser: how the model writes calls and reasoning, or "none";
            None: as its template tells.
        api_keys: a request must have one of them; none: no key is asked for.
        allowed_origins: web pages that may use the server; `allowed_methods` and `allowed_headers`
            are those of their requests, which may have cookies with `allow_credentials`.
        has_docs: whether there are /docs and /openapi.json.
        max_body_bytes: longer requests are refused.
        max_waiting: how many requests may wait behind the `max_num_seqs` that run; None: any.
        max_samples: how many samples one request may ask for, over all its prompts.
        request_timeout: seconds that any request may take; None: as long as it needs.
        root_path: what a path may begin with, such as "/llm"; "": nothing.
        request_id_headers: whether all answers have the header X-Request-Id.
        force_include_usage: whether each event of every stream says what was used.
        return_tokens_as_token_ids: whether all log-probabilities name tokens `token_id:5`.
        per_request_metrics: whether answers tell the times of their request.
        sse_keep_alive_s: seconds without an event after which a stream of completions or of a chat
            says that it is alive; 0: it never does.
        middleware: ASGI middleware of the user's own, each around those before it.
    """

    names: tuple[str, ...]
    lora_modules: tuple[LoRAModule, ...] = ()
    chat_template: str | None = None
    content_format: ContentFormat = "auto"
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    reasoning_efforts: Mapping[str, str] = field(default_factory=dict)
    exclude_forbidden_tools: bool = False
    trust_request_chat_template: bool = False
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    allowed_methods: tuple[str, ...] = ("*",)
    allowed_headers: tuple[str, ...] = ("*",)
    allow_credentials: bool = False
    has_docs: bool = True
    max_body_bytes: int = 32 << 20
    max_waiting: int | None = None
    max_samples: int = 4096
    request_timeout: float | None = None
    root_path: str = ""
    request_id_headers: bool = False
    force_include_usage: bool = False
    return_tokens_as_token_ids: bool = False
    per_request_metrics: bool = False
    sse_keep_alive_s: float = 0.0
    middleware: tuple[Middleware, ...] = ()


@dataclass(frozen=True)
class Service:
    """The engine and its settings, as endpoints use them.

    Attributes:
        adapters: those that requests may name in place of the model.
        refusals: how many requests `check_queue` has refused, by the reason's name in vLLM.
    """

    llm: AsyncLLM
    settings: ServerSettings
    created: int = field(default_factory=lambda: int(time.time()))
    defaults: dict[str, Any] = field(init=False)
    adapters: Adapters = field(init=False)
    refusals: Counter[str] = field(default_factory=lambda: Counter({"max_num_queued_reqs": 0}))
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        object.__setattr__(self, "defaults", self.llm.default_sampling())
        object.__setattr__(self, "adapters", Adapters(self.llm, self.settings.names))

    @property
    def name(self) -> str:
        """The model's name in answers."""
        return self.settings.names[0]

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises InvalidRequestError if the engine has none."""
        return self.llm.text_tokenizer()

    @property
    def encoder(self) -> TextEncoder:
        """Tokenises texts beside the event loop. Raises InvalidRequestError as `tokenizer`."""
        return self.llm.text_encoder()

    def timings(
        self, metrics: RequestMetrics, num_tokens: int, num_outputs: int
    ) -> Timings | UnsetType | None:
        """What an answer says of the times of its request; null if these are of several outputs."""
        if not self.settings.per_request_metrics:
            return UNSET
        return Timings.of(metrics, num_tokens) if num_outputs == 1 else None

    @cached_property
    def turn_format(self) -> TurnFormat:
        """How the model writes calls and reasoning."""
        return self._turn_format(
            self.tokenizer.chat.chosen(self.settings.chat_template, with_tools=True)
        )

    def turn_format_of(self, request: Request) -> TurnFormat:
        """How a request's adapter writes calls and reasoning: as its template tells, if it has one.

        What the server was started with counts more.
        """
        own = own_template(request.own_templates, with_tools=True)
        if own is None or self.settings.chat_template is not None:
            return self.turn_format
        return self._turn_format(own)

    def _turn_format(self, template: str | None) -> TurnFormat:
        settings = self.settings
        calls, reasoning = settings.tool_call_parser, settings.reasoning_parser
        return TurnFormat.of(self.tokenizer, template, calls, reasoning)

    @property
    def can_chat(self) -> bool:
        """Whether there is a template that makes a conversation a prompt."""
        if self.settings.chat_template is not None:
            return True
        return not self.llm.config.skip_tokenizer_init and bool(self.tokenizer.chat.templates)

    def check_model(self, request: Request) -> None:
        """Gives a request the adapter that it names, which it keeps whatever becomes of the name.

        Raises:
            ApiError: the request names another model.
        """
        named = request.model
        adapter = self.adapters.get(named)
        if adapter is not None:
            request.use(adapter.lora, adapter.templates)
        if request.lora is None and named is not None and named not in self.settings.names:
            raise self.no_model(named)

    def name_of(self, request: Request) -> str:
        """The model's name in the answer to a request: its adapter's, if it has one."""
        return self.name if request.lora is None else request.lora.lora_name

    def no_model(self, name: str) -> ApiError:
        """The error of a model that is not served. It says which are."""
        names = [*self.settings.names, *(one.lora.lora_name for one in self.adapters.all())]
        more = ", ..." if len(names) > MAX_NAMED else ""
        there = ", ".join(shown(one) for one in names[:MAX_NAMED])
        message = f"the model {shown(name)} does not exist; there is {there}{more}"
        return ApiError(404, message, param="model", code="model_not_found")

    def adopt(self, request: SamplingRequest) -> None:
        """Sets what this server decides for every request."""
        if self.settings.return_tokens_as_token_ids:
            request.return_tokens_as_token_ids = True
        if self.settings.force_include_usage and request.stream:
            request.stream_options = StreamOptions(include_usage=True, continuous_usage_stats=True)

    def check_queue(self, prompts: int = 1) -> None:
        """
        Raises:
            ApiError: too many requests wait already for a request of so many prompts.
        """
        limit = self.settings.max_waiting
        waiting = self.llm.num_unfinished_requests - self.llm.config.max_num_seqs
        if limit is not None and waiting + prompts > limit:
            self.refusals["max_num_queued_reqs"] += 1
            more = f", this one has {prompts} prompts" if prompts > 1 else ""
            message = f"{max(waiting, 0)} requests wait already{more}, and at most {limit} may wait"
            raise ApiError(503, message, code="queue_full", headers={"Retry-After": "1"})

    def check_samples(self, params: SamplingParams, prompts: int = 1) -> None:
        """
        Raises:
            ApiError: a request asks for too many samples.
        """
        limit, each = self.settings.max_samples, max(params.n, params.best_of or 0)
        if prompts * each > limit:
            name = "n" if params.n == each else "best_of"
            of_all = f" for each of {prompts} prompts" if prompts > 1 else ""
            message = f"{name} must be at most {limit // prompts}{of_all}, got {each}"
            raise invalid(name, message)

    def within(self, max_tokens: int | None) -> int | None:
        """The output that a request may have, if it asks for so much; None: it does not say.

        As in vLLM, a `max_new_tokens` that whoever starts the server chooses is a limit; one that
        the model's makers suggest is only a default.
        """
        config = self.llm.config
        limit = (config.override_generation_config or {}).get("max_new_tokens")
        if config.generation_config not in ("auto", "vllm"):
            limit = self.defaults.get("max_tokens")
        return max_tokens if limit is None or max_tokens is None else min(limit, max_tokens)

    def fit(
        self,
        params: SamplingParams,
        prompt: dict[str, Any],
        wanted: int | None,
        side: Literal["left", "right"] | None = None,
    ) -> SamplingParams:
        """The parameters of a prompt, if what its client wants fits the model's length.

        Args:
            prompt: cut here if it is cut at its end; the engine cuts at the beginning.
            wanted: the tokens that the client asks for; None: it does not say.
            side: where the prompt is cut; None: at the beginning.

        Raises:
            RequestTooLargeError: prompt and output exceed the length.
        """
        limit, keep = self.llm.max_model_len, params.truncate_prompt_tokens
        if keep == -1 and wanted is not None:
            keep = max(1, limit - max(1, wanted))
            params = replace(params, truncate_prompt_tokens=keep)
        name = "prompt_embeds" if "prompt_embeds" in prompt else "prompt_token_ids"
        if side == "right" and keep is not None:
            prompt[name] = prompt[name][: limit - 1 if keep == -1 else keep]
        count = len(prompt[name])
        if keep is not None and keep > 0:
            count = min(count, keep)
        if wanted is not None and count + wanted > limit > count:
            raise RequestTooLargeError(
                f"max_tokens must be at most {limit - count}, got {wanted}: the prompt has {count} "
                f"tokens, and max_model_len allows {limit} of prompt and output together"
            )
        return params

    def generate(
        self, prompt: PromptInput, params: SamplingParams, request: SamplingRequest, number: int = 0
    ) -> AsyncGenerator[RequestOutput]:
        """The outputs of a prompt, with what the request says of its service.

        Args:
            number: which of the request's prompts it is.
        """
        timeout = self._timeout(request.timeout)
        name = self._engine_id(number)
        lora = request.lora
        return self.llm.generate(
            prompt, params, name, lora_request=lora, priority=request.priority, timeout=timeout
        )

    def encode(
        self, prompt: PromptInput, params: PoolingParams, request: PooledRequest, number: int
    ) -> AsyncIterator[PoolingRequestOutput]:
        """As `generate`, of a prompt that becomes a vector."""
        timeout = self._timeout(request.timeout)
        name = self._engine_id(number)
        lora = request.lora
        return self.llm.encode(
            prompt, params, name, lora_request=lora, priority=request.priority, timeout=timeout
        )

    def _engine_id(self, prompt: int) -> str | None:
        """The answer's id, which clients may choose, and a number that no other has."""
        origin = CLIENT_REQUEST.get()
        return None if origin is None else f"{origin.request_id}/{prompt}#{next(self._numbers)}"

    def _timeout(self, wanted: float | None) -> float | None:
        """The seconds that a request may take: as it asks for, within the server's limit."""
        given = [one for one in (wanted, self.settings.request_timeout) if one is not None]
        return min(given, default=None)


def answer_id(prefix: str, request_id: str | None, http: HttpRequest, joint: str = "-") -> str:
    """An id for an answer: from the request, its header X-Request-Id, or a new one.

    Logs and traces of what this task asks the engine have it too.

    Raises:
        ApiError: the one that was given is long, or would break a line of the log.
    """
    given = request_id or http.headers.get("x-request-id")
    if given and (len(given) > MAX_ID or not given.isprintable()):
        where = "request_id" if request_id else "X-Request-Id"
        message = f"{where} must have at most {MAX_ID} characters, all printable"
        raise invalid(where, f"{message}, got {shown(given)}")
    name = f"{prefix}{joint}{given or uuid.uuid4().hex}"
    CLIENT_REQUEST.set(ClientRequest(name, http.headers))
    return name
