"""The input: items of a conversation, as messages."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from jax_engine.serving.openai.conversation import Conversation
from jax_engine.serving.openai.errors import invalid
from jax_engine.serving.openai.parts import part_kind, read_part
from jax_engine.serving.openai.request_fields import ITEM_HARMLESS, Fields
from jax_engine.serving.openai.responses_api.tools import full_name

type Parts = str | list[dict[str, Any]]


class _Part(Fields):
    """A piece of an item."""

    harmless: ClassVar[frozenset[str]] = ITEM_HARMLESS
    type: str = ""


class _TextPart(_Part):
    text: str


class _Refusal(_Part):
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class _Message(_Part):
    role: Literal["user", "assistant", "system", "developer"]
    content: Parts


class _Call(_Part):
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str = ""


class _CallOutput(_Part):
    harmless: ClassVar[frozenset[str]] = ITEM_HARMLESS | {"name", "namespace"}  # the call's own
    call_id: str
    output: Parts


class _Reasoning(_Part):
    summary: list[dict[str, Any]] | None = None
    content: list[dict[str, Any]] | None = None
    encrypted_content: str | None = None


type _TextKinds = dict[str, type[_TextPart] | type[_Refusal]]
_SAID: _TextKinds = {
    "input_text": _TextPart, "output_text": _TextPart, "text": _TextPart, "refusal": _Refusal,
}  # fmt: skip
_THOUGHT: _TextKinds = {"reasoning_text": _TextPart, "summary_text": _TextPart}


def add_items(chat: Conversation, items: str | list[dict[str, Any]]) -> None:
    """Adds the input to a conversation.

    Raises:
        ApiError, RequestValidationError: an item is wrong or of a kind that is not supported.
    """
    if isinstance(items, str):
        chat.say("user", [items])
        return
    if not items:
        raise invalid("input", "input must hold at least 1 item, got none")
    for i, data in enumerate(items):
        kind = part_kind(_KINDS, data, "message", "input", i)
        _ADD[kind](chat, read_part(kind, data, "input", i), i)


def _add_message(chat: Conversation, item: _Message, i: int) -> None:
    # Templates know no developer, who is OpenAI's new name of the system.
    role = "system" if item.role == "developer" else item.role
    chat.say(role, _texts(_SAID, item.content, "input", i, "content"))


def _add_call(chat: Conversation, item: _Call, i: int) -> None:
    chat.call(item.call_id, full_name(item.namespace, item.name), item.arguments)


def _add_output(chat: Conversation, item: _CallOutput, i: int) -> None:
    text = "\n".join(_texts(_SAID, item.output, "input", i, "output"))
    chat.result(f"input.{i}.call_id", item.call_id, text)


def _add_reasoning(chat: Conversation, item: _Reasoning, i: int) -> None:
    if item.encrypted_content is not None:
        where = f"input.{i}.encrypted_content"
        raise invalid(where, f"{where} cannot be read here: send the reasoning as content")
    texts = _texts(_THOUGHT, item.content or item.summary or [], "input", i, "content")
    if texts:
        chat.think("\n".join(texts))


def _texts(kinds: _TextKinds, parts: Parts, *where: str | int) -> list[str]:
    if isinstance(parts, str):
        return [parts]
    found = []
    for k, data in enumerate(parts):
        kind = part_kind(kinds, data, "", *where, k)
        found.append(read_part(kind, data, *where, k).text)
    return found


_KINDS: dict[str, type[_Part]] = {
    "message": _Message,
    "function_call": _Call,
    "function_call_output": _CallOutput,
    "reasoning": _Reasoning,
}
_ADD: dict[type[_Part], Callable[..., None]] = {
    _Message: _add_message,
    _Call: _add_call,
    _CallOutput: _add_output,
    _Reasoning: _add_reasoning,
}
