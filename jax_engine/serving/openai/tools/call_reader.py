"""What readers of calls have in common."""

import json
import uuid
from collections.abc import Callable
from typing import Any

from jax_engine.serving.openai.tools.json_scan import JsonObject
from jax_engine.serving.openai.tools.letters import LetterReader, Reading
from jax_engine.serving.openai.turns import CallPiece


def call_id() -> str:
    """A new id of a call, as OpenAI's look."""
    return f"call_{uuid.uuid4().hex[:24]}"


class CallReader(LetterReader):
    """Splits text into content and calls. A call that is malformed is content.

    White space before the first call, between calls and behind them is not content.

    Args:
        new_id: makes the ids of calls.
        guided: a grammar makes calls well formed, so their arguments are given as they come.
            Without one, a call is given once it is complete.
        several: whether a turn may call more than one tool; else only the first call is given.
    """

    arguments_names: tuple[str, ...] = ("arguments", "parameters")
    needs_arguments = False

    def __init__(
        self, new_id: Callable[[], str] = call_id, *, guided: bool = False, several: bool = True
    ) -> None:
        self.guided, self._several = guided, several
        self.num_calls = 0
        self.open = False
        self._new_id = new_id
        self._content: list[str] = []
        self._pieces: list[CallPiece] = []
        self._gap: list[str] | None = []  # white space that may not be content; None: it is
        super().__init__()

    def take(self, text: str, *, ended: bool) -> tuple[str, list[CallPiece]]:
        """What is new: content, and pieces of calls."""
        self.feed(text, ended=ended)
        if ended and self._gap and not self.num_calls:
            self._content += self._gap
        content, self._content = "".join(self._content), []
        pieces, self._pieces = self._pieces, []
        return content, pieces

    def say(self, text: str) -> None:
        """Takes text as content."""
        if self._gap is not None:
            self._gap.append(text)
            if not text.strip():
                return
            text, self._gap = "".join(self._gap), None
        self._content.append(text)

    def call(self, name: str, arguments: str) -> None:
        """Gives a whole call."""
        if self.num_calls and not self._several:
            return
        self.begin_call(name)
        self._pieces.append(CallPiece(self.num_calls - 1, arguments))
        self.open = False

    def begin_call(self, name: str) -> None:
        """Gives the name of a call."""
        self._pieces.append(CallPiece(self.num_calls, "", self._new_id(), name))
        self.num_calls += 1
        self._gap, self.open = [], True

    def add(self, arguments: str) -> None:
        """Gives what is new of the arguments of the last call."""
        self._pieces.append(CallPiece(self.num_calls - 1, arguments))

    def json_object(self) -> Reading[tuple[str, bool]]:
        """The text of a JSON object, and whether it is one: else it ends where it cannot be."""
        scan, found = JsonObject(), ""
        while char := (yield from self.next_char()):
            status = scan.take(char)
            if status == "bad":
                self.give_back(char)
                break
            found += char
            if status == "done":
                return found, True
        return found, False

    def arguments_object(self) -> Reading[None]:
        """Gives a JSON object's text as the arguments of the call that was begun."""
        scan = JsonObject()
        while char := (yield from self.next_char()):
            self.add(char)
            if scan.take(char) != "more":
                self.open = False
                return

    def call_object(self) -> Reading[str | None]:
        """Reads {"name": .., "arguments": {..}}; its text if it is no call.

        With a grammar, `name` is first and `arguments` second.
        """
        if self.guided:
            return (yield from self._guided_object())
        text, whole = yield from self.json_object()
        called = self._called(text) if whole else None
        if called is None:
            return text
        self.call(*called)
        return None

    def _guided_object(self) -> Reading[str | None]:
        scan, head = JsonObject(), ""
        while char := (yield from self.next_char()):
            name = _name_before(head) if char == "{" and scan.depth == 1 else None
            if name is not None:
                self.begin_call(name)
                self.give_back(char)
                yield from self.arguments_object()
                yield from self.space()
                yield from self.literal("}")
                return None
            if scan.take(char) != "more":
                self.give_back(char)
                break
            head += char
        return head

    def _called(self, text: str) -> tuple[str, str] | None:
        """The name and the arguments of a call, or None."""
        try:
            fields: dict[str, Any] = json.loads(text)
            name = fields.get("name")
            given = [fields[one] for one in self.arguments_names if one in fields]
            if not isinstance(name, str) or not name or (self.needs_arguments and not given):
                return None
            arguments = given[0] if given else {}
            if isinstance(arguments, str):  # some models write its text
                arguments = json.loads(arguments)
            if not isinstance(arguments, dict):
                return None
            name.encode()
            return name, json_text(arguments)
        except (ValueError, RecursionError):
            return None


def _name_before(head: str) -> str | None:
    """The name in the beginning of a call, up to its arguments."""
    try:
        name = json.loads(head.rpartition(",")[0] + "}").get("name")
    except (ValueError, RecursionError):
        return None
    return name if isinstance(name, str) and name else None


def json_text(value: Any) -> str:
    """JSON in its own letters, where UTF-8 can write them. Raises ValueError of infinities."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text
