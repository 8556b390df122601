"""Builds the messages of a chat from what other APIs send piece by piece."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jax_engine.checks import shown
from jax_engine.serving.openai.errors import invalid


@dataclass
class Conversation:
    """Messages in the order of their pieces.

    Neighbours of one role become one message, since many templates want roles to alternate: so do
    the reasoning, the text and the calls of a turn.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    _calls: dict[str, str] = field(default_factory=dict)

    def say(self, role: str, texts: Sequence[str]) -> None:
        """Adds texts that a role says."""
        message = self._last_of(role)
        message["content"] += [{"type": "text", "text": one} for one in texts]

    def think(self, text: str) -> None:
        """Adds what the model thought before it spoke."""
        message = self._last_of("assistant")
        before = message.get("reasoning_content")
        message["reasoning_content"] = text if before is None else f"{before}\n{text}"

    def call(self, id_: str, name: str, arguments: str) -> None:
        """Adds a call of a tool."""
        calls = self._last_of("assistant").setdefault("tool_calls", [])
        function = {"name": name, "arguments": arguments}
        calls.append({"id": id_, "type": "function", "function": function})
        self._calls[id_] = name

    def result(self, where: str, id_: str, text: str) -> None:
        """Adds what a tool answered.

        Args:
            where: the field that holds the id, for the error.

        Raises:
            ApiError: no such call came before.
        """
        if id_ not in self._calls:
            raise invalid(where, f"{where} is {shown(id_)}, but no call before it has this id")
        message = {"role": "tool", "tool_call_id": id_, "name": self._calls[id_], "content": text}
        self.messages.append(message)

    def _last_of(self, role: str) -> dict[str, Any]:
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": []})
        return self.messages[-1]

    def done(self) -> list[dict[str, Any]]:
        """The messages. A content of one text is that text."""
        return [one | {"content": _simple(one["content"])} for one in self.messages]


def _simple(content: Any) -> Any:
    if isinstance(content, str) or len(content) > 1:
        return content
    return content[0]["text"] if content else ""
