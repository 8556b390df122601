"""Tool calls in messages: OpenAI's hold arguments as JSON text, templates expect mappings."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jax_engine.checks import shown
from jax_engine.errors import InvalidRequestError


def arguments_of(given: object) -> Mapping[str, Any]:
    """The arguments of a call: a mapping, or its JSON text. None, blank text and [] are {}.

    Strings in the text may hold line breaks and other control characters: models write them.

    Raises:
        ValueError: they are something else.
        RecursionError: the text is nested too deeply.
    """
    found = given
    if isinstance(given, str):
        found = json.loads(given, strict=False) if given.strip() else None
    if found is None or found == []:  # PHP writes an empty mapping as a list
        return {}
    if not isinstance(found, Mapping):
        raise ValueError("it is not an object")
    return found


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
    given = function.get("arguments")
    try:
        arguments = arguments_of(given)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"{where}['function']['arguments'] must be a JSON object, got {shown(given)}: {error}"
        ) from error
    return dict(call) | {"function": dict(function) | {"arguments": arguments}}
