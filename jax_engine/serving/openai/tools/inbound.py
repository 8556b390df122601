"""Messages that a conversation brings back: calls, what tools answered, and reasoning."""

from collections.abc import Mapping, Sequence
from typing import Any

from jax_engine.checks import shown
from jax_engine.serving.openai.errors import invalid

_REASONING = ("reasoning", "reasoning_content")


def inbound_messages(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages for the template, with reasoning under both of its names.

    What any template would refuse is checked there; this checks what a template ignores.

    Raises:
        ApiError: a tool's answer names no call, a call names no tool, or reasoning is no text.
    """
    return [_message(f"messages[{i}]", one) for i, one in enumerate(messages)]


def _message(where: str, message: dict[str, Any]) -> dict[str, Any]:
    if message.get("role") == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise _wrong(f"{where}.tool_call_id", "the id of a call", message.get("tool_call_id"))
    calls = message.get("tool_calls")
    for i, call in enumerate(calls if isinstance(calls, list) else ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping) and not isinstance(function.get("name"), str):
            name = function.get("name")
            raise _wrong(f"{where}.tool_calls[{i}].function.name", "a tool's name", name)
    given = [message[name] for name in _REASONING if message.get(name) is not None]
    if not given:
        return message
    if not isinstance(given[0], str):
        raise _wrong(f"{where}.reasoning", "text", given[0])
    return message | dict.fromkeys(_REASONING, given[0])


def _wrong(where: str, wanted: str, value: object) -> Exception:
    return invalid(where, f"{where} must be {wanted}, got {shown(value)}")
