"""What a message of a chat says: plain text, or a list of parts; templates differ in what
they take.

Here there are parts of text only: this engine's models read nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from jax_engine.checks import shown
from jax_engine.errors import InvalidRequestError
from jax_engine.tokenization.tool_calls import with_parsed_arguments

Message = Mapping[str, Any]
ContentFormat = Literal["auto", "string", "openai"]
_PROBE = "jaxengineprobe"


def checked_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Copies of the messages of one conversation, each with a role and with text as content.

    The arguments of tool calls become mappings, as templates take them.

    Raises:
        InvalidRequestError: There are none, or one is of another form; the message says which.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
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
        for i, part in enumerate(content):
            _check_part(f"{where}['content'][{i}]", part)
    elif content is not None and not isinstance(content, str):
        raise InvalidRequestError(
            f"{where}['content'] must be text or a list of parts, got {type(content).__name__}"
        )
    # As in vLLM: what called tools has often nothing to say, and templates want a text
    said = dict(message) | {"content": "" if content is None else content}
    return with_parsed_arguments(where, said)


def _check_part(where: str, part: object) -> None:
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if not isinstance(part, Mapping) or kind != "text" or not isinstance(part.get("text"), str):
        raise InvalidRequestError(
            f"{where} must be {{'type': 'text', 'text': ..}}, got one of type {shown(kind)}: the "
            "engine reads text only"
        )


def find_format(render: Callable[[list[dict[str, Any]]], str]) -> set[str]:
    """Which contents a template takes: "string", "openai" (a list of parts), or both.

    Found by trying: a template that was made for text prints a list as Python would, and one that
    was made for lists finds no part in a text.
    """
    formats = set()
    for name, content in (("string", _PROBE), ("openai", [{"type": "text", "text": _PROBE}])):
        try:
            text = render([{"role": "user", "content": content}])
        except Exception:  # whatever a template raises: it does not take this
            continue
        if _PROBE in text and "'type'" not in text:
            formats.add(name)
    return formats or {"string"}


def with_format(messages: list[dict[str, Any]], formats: set[str]) -> list[dict[str, Any]]:
    """The messages with each content in one of these formats; joined parts are lines."""
    converted = []
    for message in messages:
        content = message["content"]
        if isinstance(content, str) and "string" not in formats:
            message = message | {"content": [{"type": "text", "text": content}]}
        elif not isinstance(content, str) and "openai" not in formats:
            message = message | {"content": "\n".join(part["text"] for part in content)}
        converted.append(message)
    return converted
