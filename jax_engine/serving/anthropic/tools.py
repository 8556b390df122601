"""Tools, and the choice among them, as chats have them."""

from typing import Any, ClassVar, Literal

from jax_engine.checks import shown
from jax_engine.serving.anthropic.request import CountRequest
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.parts import read_part
from jax_engine.serving.openai.request_fields import BLOCK_HARMLESS, Fields


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
