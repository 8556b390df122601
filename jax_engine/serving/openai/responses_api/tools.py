"""Tools, and the choice among them, as chats have them.

A function of a namespace is called NAMESPACE__FUNCTION there, and has its two names in the answer.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from jax_engine.checks import shown
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.parts import read_part
from jax_engine.serving.openai.request_fields import Fields
from jax_engine.serving.openai.responses_api.request import ResponsesRequest

_CHOICES = ("none", "auto", "required")
# Codex offers these to all servers and never runs them: the model is not told of them.
OFFERED_IN_VAIN = ("web_search", "web_search_2025_08_26", "web_search_preview")


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
    elif data.get("type") not in OFFERED_IN_VAIN:
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
