"""The base of all request bodies: an unknown field is refused, and null means the default.

JSON can hold values that not all of its readers can take: great depth, and lone surrogates. A body
with such a value is refused, too.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from jax_engine.checks import shown, suggestion
from jax_engine.lora.request import LoRARequest

# OpenAI's fields that say nothing about the answer.
HARMLESS = frozenset({
    "user", "metadata", "store", "service_tier", "parallel_tool_calls", "safety_identifier",
    "prompt_cache_key", "prompt_cache_retention", "verbosity", "prediction",
})  # fmt: skip

# The same of the Responses API alone: limits of hosted tools, and hints for OpenAI's caches.
RESPONSES_HARMLESS = HARMLESS | {"max_tool_calls", "prompt_cache_options", "client_metadata"}
# The same of Anthropic's API: hints for its caches and its billing. `context_management` may drop
# parts of a long conversation; here none is dropped.
MESSAGES_HARMLESS = frozenset({
    "metadata", "service_tier", "cache_control", "context_management", "diagnostics",
    "inference_geo", "speed", "user_profile_id", "workspace_id",
})  # fmt: skip
# The same inside of items, parts, blocks and tools: their ids and states, and marks for caches.
ITEM_HARMLESS = frozenset({
    "id", "status", "phase", "annotations", "logprobs", "prompt_cache_breakpoint", "caller",
})  # fmt: skip
BLOCK_HARMLESS = frozenset({
    "cache_control", "citations", "caller", "toolset_name", "signature", "eager_input_streaming",
})  # fmt: skip

MAX_MESSAGES = 10_000  # messages or items of a conversation
MAX_TOOLS = 1024
Messages = Annotated[list[dict[str, Any]], Field(max_length=MAX_MESSAGES)]
Tools = Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)]


def _fail_fast(schema: Any) -> None:
    inner = schema.values() if isinstance(schema, dict) else schema
    if isinstance(schema, dict) and schema.get("type") in ("list", "dict"):
        schema["fail_fast"] = True
    for one in inner:
        if isinstance(one, dict | list | tuple):
            _fail_fast(one)


class Fields(BaseModel):
    """A JSON object whose fields are all known.

    Attributes:
        harmless: names that are taken and ignored.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    harmless: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """The checks of these fields. A list or dict of a hundred thousand wrong values is one
        error: pydantic would make an error of each, for seconds."""
        schema = handler(source)
        _fail_fast(schema)
        return schema

    @model_validator(mode="wrap")
    @classmethod
    def _known(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, dict):
            return handler(data)
        known = {one.alias or name for name, one in cls.model_fields.items()}
        for name in data:
            if name not in known and name not in cls.harmless and data[name] is not None:
                raise field_error(name, _unknown(name, sorted(known)))
        return handler({k: _number(v) for k, v in data.items() if k in known and v is not None})


def _number(value: Any) -> Any:
    """A whole number without a point: languages that know floats alone write 9 as 9.0."""
    whole = type(value) is float and value.is_integer() and abs(value) < 2**53
    return int(value) if whole else value


def field_error(name: str, problem: str) -> PydanticCustomError:
    """An error of validation whose message names its field."""
    context = {"problem": problem, "name": name}
    for key, text in context.items():
        context[key] = text.encode("utf-8", "backslashreplace").decode()  # JSON knows surrogates
    return PydanticCustomError("named_field", "{problem}", context)


def _unknown(name: str, known: list[str]) -> str:
    near = suggestion(name, known)
    hint = near if "did you mean" in near else ""
    return f"{name[:100]} is not a field of this request{hint}"


class Body(Fields):
    """The body of a request. It has a limit of depth, since what copies and writes it recurses."""

    @model_validator(mode="before")
    @classmethod
    def _sound(cls, data: Any) -> Any:
        for name, value in data.items() if isinstance(data, dict) else ():
            problem = problem_of(value)
            if problem is not None:
                raise field_error(str(name), f"{str(name)[:100]} {problem}")
        return data

    def engine_names(self) -> dict[str, str]:
        """Fields of the engine that this request calls otherwise, for errors: its own names."""
        return {}


class Request(Body):
    """A request of an endpoint.

    Attributes:
        model: a name that the server has for its model or for an adapter; None: its model.
    """

    harmless: ClassVar[frozenset[str]] = HARMLESS
    model: str | None = None
    _lora: LoRARequest | None = PrivateAttr(None)
    _templates: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def lora(self) -> LoRARequest | None:
        """The adapter that `model` named when the request came; None: the model alone."""
        return self._lora

    @property
    def own_templates(self) -> Mapping[str, str]:
        """The chat templates of its adapter by name; empty: the model's are used."""
        return self._templates

    def use(self, lora: LoRARequest, templates: Mapping[str, str]) -> None:
        """Gives the request its adapter."""
        self._lora, self._templates = lora, templates


MAX_DEPTH = 128  # objects and arrays inside of each other


def problem_of(value: Any) -> str | None:
    """Why a value cannot be taken; None: it can."""
    layer = [value]
    for _ in range(MAX_DEPTH + 1):
        containers: list[Any] = []
        for one in layer:  # of which there may be many
            kind = type(one)
            if kind is list or kind is dict:
                containers.append(one)
            elif kind is str and not _is_unicode(one):
                return f"must be valid Unicode, got a lone surrogate in {shown(one)}"
        if not containers:
            return None
        layer = []
        for one in containers:
            layer += one
            if type(one) is dict:
                layer += one.values()
    return f"must not be nested deeper than {MAX_DEPTH} levels"


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
