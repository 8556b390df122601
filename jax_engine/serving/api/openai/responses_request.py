"""A request of OpenAI's Responses API (`/v1/responses`), and the chat that it asks for.

The request becomes a `ChatRequest`: its items become messages, and its tools those of a chat. A
function of a namespace is called NAMESPACE__FUNCTION in the chat, and has its two names in the
answer. Nothing is stored: a client sends the whole conversation each time.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from jax_engine.checks import shown
from jax_engine.serving.api.api_errors import invalid
from jax_engine.serving.api.chat_messages import Conversation, part_kind, read_part
from jax_engine.serving.api.endpoint_requests import ChatRequest, Effort
from jax_engine.serving.api.request_fields import (
    ITEM_HARMLESS,
    RESPONSES_HARMLESS,
    Fields,
    Messages,
    Tools,
)
from jax_engine.serving.api.sampling_fields import SamplingFields

LOGPROBS = "message.output_text.logprobs"
# What an answer can include. But for log-probabilities it is nothing here: no tool is hosted, and
# reasoning is not encrypted.
INCLUDABLE = (
    LOGPROBS,
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
)
_NEEDS_STORE = {
    "previous_response_id": "send the whole conversation as input",
    "conversation": "send the whole conversation as input",
    "prompt": "send its text as instructions and input",
    "context_management": "send a shorter input",
}


class TextFormat(Fields):
    """The form of the answer: of `response_format`, without the level `json_schema`."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = "output"
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class Text(Fields):
    """How the answer is to be written."""

    harmless: ClassVar[frozenset[str]] = frozenset({"verbosity"})
    format: TextFormat | None = None


class Reasoning(Fields):
    """How much the model is to think. It is shown whole, so no summary of it is written."""

    harmless: ClassVar[frozenset[str]] = frozenset({"summary", "generate_summary"})
    effort: Effort | None = None


class ResponseStreamOptions(Fields):
    """Padding against eavesdroppers is not written."""

    harmless: ClassVar[frozenset[str]] = frozenset({"include_obfuscation"})


class ResponsesRequest(SamplingFields):
    """`/v1/responses`.

    Attributes:
        input: text, or a list of items.
        max_output_tokens: None: as many as fit.
        truncation: "auto": of too long a prompt the end is kept.
        metadata, user, prompt_cache_key, safety_identifier: only written into the answer.
    """

    harmless: ClassVar[frozenset[str]] = RESPONSES_HARMLESS
    input: str | Messages
    instructions: str | None = None
    tools: Tools | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    max_output_tokens: int | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    chat_template_kwargs: dict[str, Any] | None = None
    stream_options: ResponseStreamOptions | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    background: bool = False
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    context_management: Any = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer is to have log-probabilities."""
        return LOGPROBS in (self.include or ())

    def engine_names(self) -> dict[str, str]:
        """As `Body.engine_names`."""
        names = super().engine_names()
        if self.text is not None and self.text.format is not None:
            names.setdefault("structured_outputs", "text.format.schema")
        return names | {"logprobs": "top_logprobs", "max_tokens": "max_output_tokens"}

    def check(self) -> None:
        """
        Raises:
            ApiError: a field asks for what this server does not do, or goes with no other.
        """
        for name, hint in _NEEDS_STORE.items():
            if getattr(self, name) is not None:
                raise invalid(name, f"{name} is not supported: nothing is stored here; {hint}")
        if self.background:
            raise invalid(
                "background", "background is not supported: nothing is stored here; use stream"
            )
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            message = f"max_output_tokens must be at least 1, got {self.max_output_tokens}"
            raise invalid("max_output_tokens", message)
        for one in self.include or ():
            if one not in INCLUDABLE:
                known = ", ".join(INCLUDABLE)
                raise invalid("include", f"include must hold some of {known}, got {shown(one)}")
        if self.top_logprobs and not self.wants_logprobs:
            message = f'top_logprobs must only be given with include: ["{LOGPROBS}"]'
            raise invalid("top_logprobs", message)


def chat_request(request: ResponsesRequest) -> ChatRequest:
    """The chat that a request asks for.

    Raises:
        ApiError, RequestValidationError: it is not acceptable.
    """
    request.check()
    chat = Conversation()
    if request.instructions is not None:
        chat.add_texts("system", [request.instructions])
    add_items(chat, request.input)
    fields = {name: getattr(request, name) for name in SamplingFields.model_fields}
    tools, schemas = chat_tools(request)
    fields |= tools | _logprobs(request)
    fields |= {
        "messages": chat.done(),
        "max_completion_tokens": request.max_output_tokens,
        "response_format": _format(request),
        "reasoning_effort": None if request.reasoning is None else request.reasoning.effort,
        "truncate_prompt_tokens": -1 if request.truncation == "auto" else None,
        "chat_template_kwargs": request.chat_template_kwargs,
    }
    return ChatRequest.model_validate(fields).with_schemas(schemas)


def _logprobs(request: ResponsesRequest) -> dict[str, Any]:
    """A request with log-probabilities runs as a stream: so each token is known to be of the text,
    of the reasoning or of a call."""
    if not request.wants_logprobs:
        return {}
    return {"logprobs": True, "top_logprobs": request.top_logprobs or 0, "stream": True}


def _format(request: ResponsesRequest) -> dict[str, Any] | None:
    form = None if request.text is None else request.text.format
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "json_object"}
    if form.schema_ is None:
        raise invalid("text.format.schema", "text.format.schema is missing")
    if request.structured_outputs is not None:
        message = "text.format and structured_outputs must not be given together"
        raise invalid("structured_outputs", message)
    schema = form.model_dump(by_alias=True, exclude={"type"}, exclude_none=True)
    return {"type": "json_schema", "json_schema": schema}


type Parts = str | list[dict[str, Any]]


class _Part(Fields):
    """A piece of an item."""

    harmless: ClassVar[frozenset[str]] = ITEM_HARMLESS
    type: str = ""


class _TextPart(_Part):
    text: str


class _Refusal(_Part):
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class _Message(_Part):
    role: Literal["user", "assistant", "system", "developer"]
    content: Parts


class _Call(_Part):
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str = ""


class _CallOutput(_Part):
    harmless: ClassVar[frozenset[str]] = ITEM_HARMLESS | {"name", "namespace"}  # the call's own
    call_id: str
    output: Parts


class _Reasoning(_Part):
    summary: list[dict[str, Any]] | None = None
    content: list[dict[str, Any]] | None = None
    encrypted_content: str | None = None


type _TextKinds = dict[str, type[_TextPart] | type[_Refusal]]
_MESSAGE_PARTS: _TextKinds = {
    "input_text": _TextPart, "output_text": _TextPart, "text": _TextPart, "refusal": _Refusal,
}  # fmt: skip
_REASONING_PARTS: _TextKinds = {"reasoning_text": _TextPart, "summary_text": _TextPart}


def add_items(chat: Conversation, items: str | list[dict[str, Any]]) -> None:
    """Adds the input to a conversation.

    Raises:
        ApiError, RequestValidationError: an item is wrong or of a kind that is not supported.
    """
    if isinstance(items, str):
        chat.add_texts("user", [items])
        return
    if not items:
        raise invalid("input", "input must hold at least 1 item, got none")
    for i, data in enumerate(items):
        kind = part_kind(_KINDS, data, "message", "input", i)
        _ADD[kind](chat, read_part(kind, data, "input", i), i)


def _add_message(chat: Conversation, item: _Message, i: int) -> None:
    # Templates know no developer, who is OpenAI's new name of the system.
    role = "system" if item.role == "developer" else item.role
    chat.add_texts(role, _texts(_MESSAGE_PARTS, item.content, "input", i, "content"))


def _add_call(chat: Conversation, item: _Call, i: int) -> None:
    chat.call(item.call_id, full_name(item.namespace, item.name), item.arguments)


def _add_output(chat: Conversation, item: _CallOutput, i: int) -> None:
    text = "\n".join(_texts(_MESSAGE_PARTS, item.output, "input", i, "output"))
    chat.result(f"input.{i}.call_id", item.call_id, text)


def _add_reasoning(chat: Conversation, item: _Reasoning, i: int) -> None:
    if item.encrypted_content is not None:
        where = f"input.{i}.encrypted_content"
        raise invalid(where, f"{where} cannot be read here: send the reasoning as content")
    texts = _texts(_REASONING_PARTS, item.content or item.summary or [], "input", i, "content")
    if texts:
        chat.think("\n".join(texts))


def _texts(kinds: _TextKinds, parts: Parts, *where: str | int) -> list[str]:
    if isinstance(parts, str):
        return [parts]
    found = []
    for k, data in enumerate(parts):
        kind = part_kind(kinds, data, "", *where, k)
        found.append(read_part(kind, data, *where, k).text)
    return found


_KINDS: dict[str, type[_Part]] = {
    "message": _Message,
    "function_call": _Call,
    "function_call_output": _CallOutput,
    "reasoning": _Reasoning,
}
_ADD: dict[type[_Part], Callable[..., None]] = {
    _Message: _add_message,
    _Call: _add_call,
    _CallOutput: _add_output,
    _Reasoning: _add_reasoning,
}


_CHOICES = ("none", "auto", "required")
# Codex offers these to all servers and never runs them: the model is not told of them.
IGNORED_TOOLS = ("web_search", "web_search_2025_08_26", "web_search_preview")


class _Function(Fields):
    """A tool that the client runs."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Namespace(Fields):
    """Functions that belong together."""

    type: Literal["namespace"]
    name: str
    description: str | None = None
    tools: list[dict[str, Any]]


class _Named(Fields):
    """A tool in a choice."""

    type: Literal["function"]
    name: str


class _Allowed(Fields):
    """A choice of some of the tools."""

    harmless: ClassVar[frozenset[str]] = frozenset()
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


def chat_tools(request: ResponsesRequest) -> tuple[dict[str, Any], list[str]]:
    """The fields `tools`, `tool_choice` and `parallel_tool_calls` of a chat.

    Returns:
        them, and what the request calls the schema of each tool.

    Raises:
        ApiError, RequestValidationError: a tool is not a function, or the choice names none.
    """
    found = [one for i, tool in enumerate(request.tools or ()) for one in _functions(i, tool)]
    names = [one["function"]["name"] for _, one in found]
    choice: Any = request.tool_choice
    if isinstance(choice, str) and choice not in _CHOICES:
        known = ", ".join(_CHOICES)
        message = f"tool_choice must be one of {known}, or name a tool, got {shown(choice)}"
        raise invalid("tool_choice", message)
    if isinstance(choice, dict):
        if choice.get("type") == "allowed_tools":
            allowed = read_part(_Allowed, choice, "tool_choice")
            wanted = [_name(one, names, "tool_choice", "tools", i) for i, one in
                      enumerate(allowed.tools)]  # fmt: skip
            found = [one for one in found if one[1]["function"]["name"] in wanted]
            choice = allowed.mode
        else:
            name = _name(choice, names, "tool_choice")
            choice = {"type": "function", "function": {"name": name}}
    fields = {
        "tools": [tool for _, tool in found] or None,
        "tool_choice": choice,
        "parallel_tool_calls": request.parallel_tool_calls,
    }
    return fields, [f"{where}.parameters" for where, _ in found]


def full_name(namespace: str | None, name: str) -> str:
    """What the model calls a function."""
    return name if namespace is None else f"{namespace}__{name}"


def namespaces(request: ResponsesRequest) -> dict[str, dict[str, str]]:
    """The fields `namespace` and `name` of functions that have both, by what the model calls them.

    The request's tools must have been checked.
    """
    return {
        full_name(one["name"], inner["name"]): {"namespace": one["name"], "name": inner["name"]}
        for one in request.tools or ()
        if one["type"] == "namespace"
        for inner in one["tools"]
    }


def _functions(i: int, data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each function, behind its way in the request."""
    if data.get("type") == "namespace":
        space = read_part(_Namespace, data, "tools", i)
        for k, inner in enumerate(space.tools):
            function = _function(inner, space.name, "tools", i, "tools", k)
            yield f"tools.{i}.tools.{k}", function
    elif data.get("type") not in IGNORED_TOOLS:
        yield f"tools.{i}", _function(data, None, "tools", i)


def _function(data: dict[str, Any], space: str | None, *where: str | int) -> dict[str, Any]:
    kind = data.get("type")
    if kind != "function":
        path = ".".join([*map(str, where), "type"])
        raise invalid(
            path,
            f"{path} must be 'function', got {shown(kind)}: this server runs no tools of its own, "
            "so leave it out",
        )
    tool = read_part(_Function, data, *where)
    function = tool.model_dump(exclude={"type"}, exclude_none=True)
    return {"type": "function", "function": function | {"name": full_name(space, tool.name)}}


def _name(data: dict[str, Any], names: list[str], *where: str | int) -> str:
    name = read_part(_Named, data, *where).name
    if name not in names:
        path = ".".join([*map(str, where), "name"])
        raise invalid(path, f"{path} must be the name of one of the tools, got {shown(name)}")
    return name
