"""The tools of a request, and which of them the model is to call."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jax_engine.checks import shown
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.tools.formats import Tool

_NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,128}")


@dataclass(frozen=True)
class Choice:
    """What a request's `tool_choice` asks for.

    Attributes:
        tools: those that may be called.
        several: whether a turn may call more than one.
    """

    kind: Literal["none", "auto", "required", "named"]
    tools: tuple[Tool, ...] = ()
    several: bool = True


def choice_of(
    tools: Sequence[dict[str, Any]] | None,
    choice: Any,
    parallel: bool | None,
    schemas: Sequence[str] = (),
) -> Choice:
    """
    Args:
        schemas: what errors call the schema of each tool; none: by its place in `tools`.

    Raises:
        ApiError: a tool has a wrong form, or the choice names none of them.
    """
    known = _tools(tools or [], schemas)
    if choice is None:
        choice = "auto" if known else "none"
    if choice in ("none", "auto"):
        return Choice(choice if known else "none", tuple(known), parallel is not False)
    if not known:
        raise invalid("tool_choice", f"tool_choice is {shown(choice)}, but there are no tools")
    if choice == "required":
        return Choice("required", tuple(known), parallel is not False)
    name = _named(choice)
    found = [one for one in known if one.name == name]
    if not found:
        names = ", ".join(one.name for one in known)
        raise invalid(
            "tool_choice", f"tool_choice must name one of the tools ({names}), got {shown(name)}"
        )
    return Choice("named", tuple(found), several=False)


def _named(choice: Any) -> str:
    function = choice.get("function") if isinstance(choice, dict) else None
    is_function = function is not None and choice.get("type", "function") == "function"
    name = function.get("name") if is_function and isinstance(function, dict) else None
    if not isinstance(name, str):
        raise invalid(
            "tool_choice",
            "tool_choice must be 'none', 'auto', 'required' or {'type': 'function', 'function': "
            f"{{'name': ..}}}}, got {shown(choice)}",
        )
    return name


def _tools(tools: Sequence[dict[str, Any]], schemas: Sequence[str]) -> list[Tool]:
    known: dict[str, Tool] = {}
    for i, one in enumerate(tools):
        schema = schemas[i] if schemas else f"tools[{i}].function.parameters"
        tool = _tool(f"tools[{i}]", one, schema)
        if tool.name in known:
            name = f"{schema.rpartition('.')[0]}.name"
            raise invalid(name, f"two tools are called {shown(tool.name)}")
        known[tool.name] = tool
    return list(known.values())


def _tool(where: str, tool: dict[str, Any], schema: str) -> Tool:
    if tool.get("type") != "function":
        raise invalid(
            f"{where}.type", f"{where}.type must be 'function', got {shown(tool.get('type'))}"
        )
    function = tool.get("function")
    if not isinstance(function, dict):
        raise invalid(
            f"{where}.function",
            f"{where}.function must be {{'name': .., 'parameters': ..}}, got {shown(function)}",
        )
    where = schema.rpartition(".")[0]
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(
            f"{where}.name",
            f"{where}.name must be 1 to 128 letters, digits, or any of _.:-, got {shown(name)}",
        )
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise invalid(f"{where}.strict", f"{where}.strict must be a boolean, got {shown(strict)}")
    return Tool(name, _schema(schema, function.get("parameters")), bool(strict), schema)


def _schema(where: str, schema: Any) -> dict[str, Any]:
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    kind = schema.get("type", "object") if isinstance(schema, dict) else None
    if kind != "object":
        raise invalid(where, f"{where} must be a JSON schema of type 'object', got {shown(schema)}")
    found: dict[str, Any] = {"type": "object"} | schema
    return found
