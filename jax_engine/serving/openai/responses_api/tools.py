"""Tools, and the choice among them, as chats have them."""

from typing import Any, ClassVar, Literal

from jax_engine.checks import shown
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.parts import read_part
from jax_engine.serving.openai.request_fields import Fields
from jax_engine.serving.openai.responses_api.request import ResponsesRequest

_CHOICES = ("none", "auto", "required")


class _Function(Fields):
    """A tool that the client runs."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


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


def chat_tools(request: ResponsesRequest) -> dict[str, Any]:
    """The fields `tools`, `tool_choice` and `parallel_tool_calls` of a chat.

    Raises:
        ApiError, RequestValidationError: a tool is not a function, or the choice names none.
    """
    tools = [_function(i, one) for i, one in enumerate(request.tools or ())]
    names = [one["function"]["name"] for one in tools]
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
            tools = [one for one in tools if one["function"]["name"] in wanted]
            choice = allowed.mode
        else:
            name = _name(choice, names, "tool_choice")
            choice = {"type": "function", "function": {"name": name}}
    return {
        "tools": tools or None,
        "tool_choice": choice,
        "parallel_tool_calls": request.parallel_tool_calls,
    }


def _function(i: int, data: dict[str, Any]) -> dict[str, Any]:
    kind = data.get("type")
    if kind != "function":
        where = f"tools.{i}.type"
        raise invalid(
            where,
            f"{where} must be 'function', got {shown(kind)}: this server runs no tools of its own, "
            "so leave it out",
        )
    tool = read_part(_Function, data, "tools", i)
    function = tool.model_dump(exclude={"type"}, exclude_none=True)
    return {"type": "function", "function": function}


def _name(data: dict[str, Any], names: list[str], *where: str | int) -> str:
    name = read_part(_Named, data, *where).name
    if name not in names:
        path = ".".join([*map(str, where), "name"])
        raise invalid(path, f"{path} must be the name of one of the tools, got {shown(name)}")
    return name
