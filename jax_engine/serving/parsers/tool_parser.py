"""The base of all tool parsers: splits text into content and calls of tools."""

import json
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from jax_engine.serving.parsers.json_scanner import JsonObject
from jax_engine.serving.parsers.parser_base import CallDelta, Reading, StreamParser
from jax_engine.tokenization.chat_content import arguments_of

SEPARATORS = ",;"  # models write these between calls, or only white space
MAX_BLANK = 256  # letters of white space that are read twice
MAX_KEY = 256  # letters, where a key decides whether an object may be a call
_FIRST_KEY = re.compile(r'\{\s*"([^"\\]*)"\s*:')


def call_id() -> str:
    """A new id of a call, as OpenAI's look."""
    return f"call_{uuid.uuid4().hex[:24]}"


class ToolParser(StreamParser):
    """Splits text into content and calls. A call that is malformed is content.

    White space before the first call, between calls and behind them is not content. Neither are
    the separators and brackets of calls.

    Args:
        new_id: makes the ids of calls.
        guided: a grammar makes calls well formed, so their arguments are given as they come.
            Without one, a call is given once it is complete.
        several: whether a turn may call more than one tool; else only the first call is given.
        tools: the JSON schema of each tool's arguments, by its name; None: they are not known.
    """

    arguments_names: tuple[str, ...] = ("arguments", "parameters")
    needs_arguments = False

    def __init__(
        self,
        new_id: Callable[[], str] = call_id,
        *,
        guided: bool = False,
        several: bool = True,
        tools: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        self.guided, self._several, self.tools = guided, several, tools
        self.num_calls = 0
        self.open = False
        self.cut = False
        self._new_id = new_id
        self._content: list[str] = []
        self._length = 0  # of `_content`
        self._pieces: list[CallDelta] = []
        self._gap: list[str] | None = []  # white space that may not be content; None: it is
        self.has_prose = False  # whether there was content
        super().__init__()

    def take(self, text: str, *, ended: bool, cut: bool = False) -> tuple[str, list[CallDelta]]:
        """What is new: content, and pieces of calls.

        Args:
            cut: whether the end is not the model's own.
        """
        self.cut = cut
        self.feed(text, ended=ended)
        if ended and self._gap and not self.num_calls:
            self._content += self._gap
        content, self._content, self._length = "".join(self._content), [], 0
        pieces, self._pieces = self._pieces, []
        return content, pieces

    def emit(self, text: str) -> None:
        """Takes text as content."""
        if self._gap is not None:
            self._gap.append(text)
            if not text.strip():
                return
            text, self._gap = "".join(self._gap), None
        self.has_prose = True
        self._content.append(text)
        self._length += len(text)

    def call(self, name: str, arguments: str, id: str = "") -> None:
        """Gives a whole call."""
        if self.num_calls and not self._several:
            self._gap = []
            return
        self.begin_call(name, id)
        self.add(arguments)
        self.open = False

    def begin_call(self, name: str, id: str = "") -> None:
        """Gives the name of a call, and its id: its own, or a new one."""
        id = id or self._new_id()
        self._pieces.append(CallDelta(self.num_calls, "", id, name, self._length))
        self.num_calls += 1
        self._gap, self.open = [], True

    def add(self, arguments: str) -> None:
        """Gives what is new of the arguments of the last call."""
        self._pieces.append(CallDelta(self.num_calls - 1, arguments, at=self._length))

    def calls(self, pending: str, *, lists: bool = True) -> Reading[str | None]:
        """Reads calls that are JSON objects, up to where none follows.

        White space, commas and semicolons may be between them, and brackets around some of them.

        Args:
            pending: what was read already: content if no call follows.
            lists: whether a list of calls is read.

        Returns:
            what was read behind the last call, and not emitted; None: all was emitted.
        """
        called, in_list, may_close = False, False, False
        while True:
            pending += yield from self.space(SEPARATORS if called else "")
            if may_close and (yield from self.literal("]")) is not None:
                pending, in_list, may_close = "", False, False
                continue
            if lists and not in_list and (yield from self.opens_list()):
                yield from self.next_char()
                pending, in_list = pending + "[", True
                continue
            char = yield from self.next_char()
            self.give_back(char)
            if char != "{":
                return self._unless_called(pending, called=called)
            if not (yield from self.call_object(pending)):
                return None
            pending, called, may_close = "", True, in_list

    def opens_list(self) -> Reading[bool]:
        """Whether a bracket comes next, and then an object."""
        if (yield from self.literal("[")) is None:
            return False
        found = "["
        while (char := (yield from self.next_char())).isspace() and len(found) < MAX_BLANK:
            found += char
        self.give_back(found + char)
        return char == "{"

    def _unless_called(self, pending: str, *, called: bool) -> str | None:
        if called:
            return pending
        self.emit(pending)
        return None

    def before_next(self, pending: str, marker: str) -> Reading[str]:
        """What stands behind a call and before the next marker; it is emitted if none follows.

        Args:
            pending: what was read behind the call.
        """
        pending += yield from self.space(SEPARATORS)
        if (yield from self.literal(marker)) is not None:
            self.give_back(marker)
            return pending
        self.emit(pending)
        return ""

    def name(self) -> Reading[str]:
        """The letters of a tool's name, possibly none."""
        name = ""
        while (char := (yield from self.next_char())) and (char.isalnum() or char in "_-./:"):
            name += char
        self.give_back(char)
        return name

    def text_before(self, *ends: str) -> Reading[tuple[str, str]]:
        """Text up to one of these ends, and this end; "" if none comes."""
        longest, found, last = max(map(len, ends)), list[str](), ""
        while char := (yield from self.next_char()):
            found.append(char)
            last = (last + char)[-longest:]
            for end in ends:
                if last.endswith(end):
                    return "".join(found)[: -len(end)], end
        return "".join(found), ""

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

    def call_object(self, pending: str) -> Reading[bool]:
        """Reads {"name": .., "arguments": {..}}. If it is no call, emits it, behind `pending`.

        With a grammar, `name` is first and `arguments` second.

        Returns:
            whether it is a call.
        """
        if self.guided:
            return (yield from self._guided_object(pending))
        scan, text, decides = JsonObject(), "", True
        while char := (yield from self.next_char()):
            status = scan.take(char)
            if status == "bad":
                self.give_back(char)
                break
            text += char
            if status == "done":
                called = self._called(text)
                if called is None:
                    break
                self.call(*called)
                return True
            key = _FIRST_KEY.fullmatch(text) if char == ":" and decides else None
            decides = decides and key is None and len(text) < MAX_KEY
            if key is not None and not self.may_begin(key[1]):
                self.emit(pending + text)
                yield from self._emit_object(scan)
                return False
        self.emit(pending + text)
        return False

    def _emit_object(self, scan: JsonObject) -> Reading[None]:
        """Says the rest of an object, so that nothing within it is a call."""
        while char := (yield from self.next_char()):
            status = scan.take(char)
            if status == "bad":
                self.give_back(char)
                return
            self.emit(char)
            if status == "done":
                return

    def _guided_object(self, pending: str) -> Reading[bool]:
        scan, head = JsonObject(), ""
        while char := (yield from self.next_char()):
            name = _name_before(head) if char == "{" and scan.depth == 1 else None
            if name is not None:
                self.begin_call(name)
                self.give_back(char)
                yield from self.arguments_object()
                yield from self.space()
                yield from self.literal("}")
                return True
            if scan.take(char) != "more":
                self.give_back(char)
                break
            head += char
        self.emit(pending + head)
        return False

    def may_call(self, name: str) -> bool:
        """Whether what looks like a call of this name is one."""
        return True

    def may_begin(self, key: str) -> bool:
        """Whether an object whose first key this is may be a call."""
        return True

    def _called(self, text: str) -> tuple[str, str] | None:
        """The name and the arguments of a call, or None."""
        try:
            fields: dict[str, Any] = json.loads(text, strict=False)
            name = fields.get("name")
            if not isinstance(name, str) or not name or not self.may_call(name):
                return None
            given = [fields[one] for one in self.arguments_names if one in fields]
            if self.needs_arguments and not given and name not in (self.tools or ()):
                return None
            name.encode()
            arguments = next((one for one in given if one is not None), None)
            return name, json_text(arguments_of(arguments))
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
