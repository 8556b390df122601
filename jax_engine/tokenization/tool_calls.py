"""Tool calls in messages: OpenAI's hold arguments as JSON text, templates expect mappings."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jax_engine.checks import shown
from jax_engine.errors import InvalidRequestError


def with_parsed_arguments(where: str, message: dict[str, Any]) -> dict[str, Any]:
    """The message with its `tool_calls[i].function.arguments` parsed; {} if none are given.

    An empty list is left out: templates ask whether the field is there.

    Args:
        where: The message's name in errors, such as "messages[1]".

    Raises:
        InvalidRequestError: A call has a wrong form, or its arguments are not a JSON object.
    """
    calls = message.get("tool_calls")
    if calls is None:
        return message
    if isinstance(calls, list | tuple) and not calls:
        return {name: value for name, value in message.items() if name != "tool_calls"}
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise InvalidRequestError(
            f"{where}['tool_calls'] must be a list of calls, got {type(calls).__name__}"
        )
    parsed = [_parsed(f"{where}['tool_calls'][{i}]", call) for i, call in enumerate(calls)]
    return message | {"tool_calls": parsed}


def _parsed(where: str, call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise InvalidRequestError(
            f"{where} must be {{'type': 'function', 'function': {{'name': .., 'arguments': ..}}}}, "
            f"got {shown(call)}"
        )
    arguments = _mapping(f"{where}['function']['arguments']", function.get("arguments"))
    return dict(call) | {"function": dict(function) | {"arguments": arguments}}


def _mapping(where: str, arguments: object) -> Mapping[str, Any]:
    found = arguments or {}
    if isinstance(arguments, str) and arguments:
        try:
            found = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise InvalidRequestError(
                f"{where} must be a JSON object, got {shown(arguments)}: {error}"
            ) from error
    if not isinstance(found, Mapping):
        raise InvalidRequestError(f"{where} must be a JSON object, got {shown(arguments)}")
    return found
