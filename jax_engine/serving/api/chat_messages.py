"""The messages of a chat, built from the typed pieces that /v1/responses and /v1/messages receive.

A piece is an item, a block or a tool. Its `type` tells which fields it has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from jax_engine.checks import shown
from jax_engine.serving.api.api_errors import invalid
from jax_engine.serving.api.request_fields import Fields


def read_part[Kind: Fields](kind: type[Kind], data: Any, *where: str | int) -> Kind:
    """A part of a known kind.

    Args:
        where: the way to the part in the request, for the error.

    Raises:
        RequestValidationError: a field is wrong.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        found = [dict(one) | {"loc": (*where, *one["loc"])} for one in error.errors()]
        raise RequestValidationError(found) from error


def part_kind[Kind](
    kinds: Mapping[str, type[Kind]], data: Mapping[str, Any], default: str, *where: str | int
) -> type[Kind]:
    """The kind that a part's `type` tells.

    Args:
        default: the type of a part that gives none.

    Raises:
        ApiError: this server knows no such kind.
    """
    name = data.get("type")
    name = default if name is None else name
    if not isinstance(name, str) or name not in kinds:
        path = ".".join([*map(str, where), "type"])
        raise invalid(path, f"{path} must be one of {', '.join(kinds)}, got {shown(name)}")
    return kinds[name]


@dataclass
class Conversation:
    """Messages in the order of their pieces.

    Neighbours of one role become one message, since many templates want roles to alternate: so do
    the reasoning, the text and the calls of a turn.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    _calls: dict[str, str] = field(default_factory=dict)

    def add_texts(self, role: str, texts: Sequence[str]) -> None:
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
