"""Contents of chat messages, as chat templates take them.

A content is plain text, or a list of parts; some templates accept only one of the two. Parts must
be text: this engine's models read nothing else. OpenAI's tool calls hold their arguments as JSON
text, and templates expect mappings.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

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


Message = Mapping[str, Any]
# Parts that are text, and their fields that hold it: a refusal is what the model said, too
_TEXT_FIELDS = {
    "text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal",
}  # fmt: skip
ContentFormat = Literal["auto", "string", "openai"]
_PROBE = "jaxengineprobe"


def checked_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Checked copies of a conversation's messages, each with a role and with text as content.

    The arguments of tool calls become mappings, as templates expect. What is None or an empty list
    of calls is left out.

    Raises:
        InvalidRequestError: There are none, or one has a wrong form; the message says which.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise InvalidRequestError(
            f"a conversation must be a list of messages, got {type(messages).__name__}"
        )
    if not messages:
        raise InvalidRequestError(
            "messages must hold at least 1 message, got an empty conversation"
        )
    return [_checked(f"messages[{i}]", message) for i, message in enumerate(messages)]


def _checked(where: str, message: object) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidRequestError(f"{where} must be a dict, got {type(message).__name__}")
    if not isinstance(message.get("role"), str):
        raise InvalidRequestError(
            f"{where} must have a role, such as 'user', got {shown(message.get('role'))}"
        )
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        content = [_part(f"{where}['content'][{i}]", part) for i, part in enumerate(content)]
    elif content is not None and not isinstance(content, str):
        raise InvalidRequestError(
            f"{where}['content'] must be text or a list of parts, got {type(content).__name__}"
        )
    # As in vLLM: a message that calls tools often has no content, but templates need text. Other
    # fields that are None are left out: templates ask whether they are there.
    given = {name: value for name, value in message.items() if value is not None}
    given["content"] = "" if content is None else content
    return with_parsed_arguments(where, given)


def _part(where: str, part: object) -> Mapping[str, Any]:
    """A part as templates know it."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    given = part if isinstance(part, Mapping) else {"type": type(part).__name__}
    kind = given.get("type")
    text = given.get(_TEXT_FIELDS[kind]) if isinstance(kind, str) and kind in _TEXT_FIELDS else None
    if not isinstance(text, str):
        raise InvalidRequestError(
            f"{where} must be {{'type': 'text', 'text': ..}}, got one of type {shown(kind)}: the "
            "engine reads text only"
        )
    return given if kind == "text" else {"type": "text", "text": text}


def content_text(content: Any) -> str:
    """The text of a checked message's content; parts are lines."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(_part("content", part)["text"] for part in content)


def find_format(render: Callable[[list[dict[str, Any]]], str]) -> set[str]:
    """Which contents a template accepts: "string", "openai" (a list of parts), or both.

    It renders both: a template made for text prints a list as Python does, and one made for lists
    finds no parts in text.
    """
    formats = set()
    for name, content in (("string", _PROBE), ("openai", [{"type": "text", "text": _PROBE}])):
        try:
            text = render([{"role": "user", "content": content}])
        except Exception:  # any error of a template means that it does not accept this form
            continue
        if _PROBE in text and "'type'" not in text:
            formats.add(name)
    return formats or {"string"}


def with_format(messages: list[dict[str, Any]], formats: set[str]) -> list[dict[str, Any]]:
    """Converts contents to one of these formats; parts are joined as lines."""
    converted = []
    for message in messages:
        content = message["content"]
        if isinstance(content, str) and "string" not in formats:
            message = message | {"content": [{"type": "text", "text": content}]}
        elif not isinstance(content, str) and "openai" not in formats:
            message = message | {"content": "\n".join(part["text"] for part in content)}
        converted.append(message)
    return converted
