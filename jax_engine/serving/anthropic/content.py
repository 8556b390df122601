"""Messages and the blocks in them, as messages of a chat."""

import json
from typing import Any, ClassVar, Literal

from jax_engine.serving.openai.conversation import Conversation
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.parts import part_kind, read_part
from jax_engine.serving.openai.request_fields import BLOCK_HARMLESS, Fields

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
        chat.say("system", texts)


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
            chat.say(message.role, [message.content])
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
            chat.say(role, [block.text])
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
