"""A request of Anthropic's API (`/v1/messages`), and the chat that it asks for.

The request becomes a `ChatRequest`: its messages and the blocks in them become messages of a chat,
its tools and the choice among them those of a chat.
"""

import json
from typing import Any, ClassVar, Literal

from pydantic import Field

from jax_engine.checks import shown
from jax_engine.serving.api.api_errors import invalid
from jax_engine.serving.api.chat_messages import Conversation, part_kind, read_part
from jax_engine.serving.api.endpoint_requests import ChatRequest, Effort
from jax_engine.serving.api.request_fields import (
    BLOCK_HARMLESS,
    MESSAGES_HARMLESS,
    Body,
    Fields,
    Messages,
    Tools,
)
from jax_engine.serving.api.sampling_fields import Words


class Thinking(Fields):
    """Whether the model is to think, and whether its thoughts are shown.

    Attributes:
        budget_tokens: checked, but no limit: a model's template knows no budget.
    """

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(Fields):
    """The form of the answer."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Fields):
    """How the answer is to be written."""

    effort: Effort | None = None
    format: OutputFormat | None = None


class CountRequest(Body):
    """`/v1/messages/count_tokens`."""

    harmless: ClassVar[frozenset[str]] = MESSAGES_HARMLESS
    model: str
    messages: Messages
    system: str | list[dict[str, Any]] | None = None
    tools: Tools | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None


class MessagesRequest(CountRequest):
    """`/v1/messages`."""

    max_tokens: int
    stop_sequences: Words | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stream: bool = False

    def engine_names(self) -> dict[str, str]:
        """As `Body.engine_names`."""
        names = {"stop": "stop_sequences"}
        if self.output_config is not None and self.output_config.format is not None:
            names["structured_outputs"] = "output_config.format.schema"
        return names

    def check(self) -> None:
        """
        Raises:
            ApiError: the numbers of tokens contradict each other.
        """
        if self.max_tokens < 1:
            raise invalid("max_tokens", f"max_tokens must be at least 1, got {self.max_tokens}")
        budget = None if self.thinking is None else self.thinking.budget_tokens
        if budget is not None and not 1 <= budget < self.max_tokens:
            name = "thinking.budget_tokens"
            raise invalid(name, f"{name} must be at least 1 and below max_tokens, got {budget}")


def chat_request(request: CountRequest) -> ChatRequest:
    """The chat that a request asks for.

    Raises:
        ApiError, RequestValidationError: it is not acceptable.
    """
    chat = Conversation()
    if request.system is not None:
        add_system(chat, request.system)
    continues = add_messages(chat, request.messages)
    fields: dict[str, Any] = chat_tools(request) | {
        "model": request.model,
        "messages": chat.done(),
        "continue_final_message": continues,
        "add_generation_prompt": not continues,
    }
    if request.thinking is not None:
        thinks = request.thinking.type != "disabled"
        fields["chat_template_kwargs"] = {"enable_thinking": thinks}
    if request.output_config is not None:
        fields["reasoning_effort"] = request.output_config.effort
        form = request.output_config.format
        if form is not None:
            schema = {"name": "output", "schema": form.schema_}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if isinstance(request, MessagesRequest):
        request.check()
        fields |= {
            "max_completion_tokens": request.max_tokens,
            "stop": request.stop_sequences,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k,
            "stream": request.stream,
        }
    names = [f"tools.{i}.input_schema" for i, _ in enumerate(request.tools or ())]
    return ChatRequest.model_validate(fields).with_schemas(names)


type Parts = str | list[dict[str, Any]]
type Where = tuple[str | int, ...]


class _Message(Fields):
    role: Literal["user", "assistant", "system"]
    content: Parts


class _Block(Fields):
    harmless: ClassVar[frozenset[str]] = BLOCK_HARMLESS
    type: str


class _Text(_Block):
    text: str


class _Thinking(_Block):
    thinking: str


class _ToolUse(_Block):
    id: str
    name: str
    input: dict[str, Any] | str = ""


class _ToolResult(_Block):
    tool_use_id: str
    content: Parts = ""
    is_error: bool = False


_TEXTS: dict[str, type[_Block]] = {"text": _Text}
_KINDS: dict[str, dict[str, type[_Block]]] = {
    "system": _TEXTS,
    "user": _TEXTS | {"tool_result": _ToolResult},
    "assistant": _TEXTS | {"thinking": _Thinking, "tool_use": _ToolUse},
}


def add_system(chat: Conversation, system: Parts) -> None:
    """Adds the field `system` to a conversation."""
    texts = _texts(system, "system")
    if texts:
        chat.add_texts("system", texts)


def add_messages(chat: Conversation, messages: list[dict[str, Any]]) -> bool:
    """Adds the field `messages` to a conversation.

    Returns:
        whether the model is to go on with the last message, which is its own.

    Raises:
        ApiError, RequestValidationError: a message is wrong or of a kind that is not supported.
    """
    if not messages:
        raise invalid("messages", "messages must hold at least 1 message, got none")
    for i, data in enumerate(messages):
        message = read_part(_Message, data, "messages", i)
        where: Where = ("messages", i, "content")
        if isinstance(message.content, str):
            chat.add_texts(message.role, [message.content])
            continue
        for k, block in enumerate(message.content):
            kind = part_kind(_KINDS[message.role], block, "", *where, k)
            _add(chat, message.role, read_part(kind, block, *where, k), (*where, k))
    last = chat.messages[-1] if chat.messages else {"role": "user"}
    if last.get("tool_calls") and last["role"] == "assistant":
        raise invalid("messages", "messages must end with the tool_result of each tool_use")
    return bool(last["role"] == "assistant")


def _add(chat: Conversation, role: str, block: _Block, where: Where) -> None:
    match block:
        case _Text():
            chat.add_texts(role, [block.text])
        case _Thinking():
            chat.think(block.thinking)
        case _ToolUse():
            given = block.input  # a stream that has no arguments adds up to blank text
            text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            chat.call(block.id, block.name, text)
        case _ToolResult():
            text = "\n".join(_texts(block.content, *where, "content"))
            failed = f"Error: {text}" if block.is_error else text  # templates know no errors
            path = ".".join([*map(str, where), "tool_use_id"])
            chat.result(path, block.tool_use_id, failed)


def _texts(parts: Parts, *where: str | int) -> list[str]:
    if isinstance(parts, str):
        return [parts]
    found = []
    for i, data in enumerate(parts):
        part_kind(_TEXTS, data, "", *where, i)
        found.append(read_part(_Text, data, *where, i).text)
    return found


class _Tool(Fields):
    harmless: ClassVar[frozenset[str]] = BLOCK_HARMLESS
    type: Literal["custom"] = "custom"
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


class _Choice(Fields):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


def chat_tools(request: CountRequest) -> dict[str, Any]:
    """The fields `tools`, `tool_choice` and `parallel_tool_calls` of a chat.

    Raises:
        ApiError, RequestValidationError: a tool is not the client's own, or the choice names none.
    """
    tools = [_function(i, one) for i, one in enumerate(request.tools or ())]
    if request.tool_choice is None:
        return {"tools": tools or None}
    choice = read_part(_Choice, request.tool_choice, "tool_choice")
    wanted: Any = {"auto": "auto", "any": "required", "none": "none"}.get(choice.type)
    if choice.type == "tool":
        if choice.name not in [one["function"]["name"] for one in tools]:
            name = shown(choice.name)
            message = f"tool_choice.name must be the name of one of the tools, got {name}"
            raise invalid("tool_choice.name", message)
        wanted = {"type": "function", "function": {"name": choice.name}}
    return {
        "tools": tools or None,
        "tool_choice": wanted,
        "parallel_tool_calls": not choice.disable_parallel_tool_use,
    }


def _function(i: int, data: dict[str, Any]) -> dict[str, Any]:
    kind = data.get("type")
    if kind not in (None, "custom"):
        where = f"tools.{i}.type"
        raise invalid(
            where,
            f"{where} must be 'custom', got {shown(kind)}: this server runs no tools of its own, "
            "so leave it out",
        )
    tool = read_part(_Tool, data, "tools", i)
    function = tool.model_dump(exclude={"type", "input_schema"}, exclude_none=True)
    return {"type": "function", "function": function | {"parameters": tool.input_schema}}
