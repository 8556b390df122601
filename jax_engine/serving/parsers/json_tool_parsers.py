"""Parsers of calls that are JSON objects: of Hermes, Granite, Phi 4, Llama 3, xLAM, and others.

No marker announces the calls of Llama 3 and xLAM: their objects stand alone or in a list, anywhere
in the text.
"""

from jax_engine.serving.parsers.parser_base import Markers, Reading
from jax_engine.serving.parsers.tool_parser import ToolParser

TOOL_CALL, TOOL_CALL_END = "<tool_call>", "</tool_call>"
TOOL_CALL_TOKEN = "<|tool_call|>"
TOOL_CALLS, TOOL_CALLS_END = "<tool_calls>", "</tool_calls>"
FUNCTION_CALL, FUNCTOOLS = "<function_call>", "functools"


class HermesToolParser(ToolParser):
    """`<tool_call>{"name": .., "arguments": {..}}</tool_call>`, anywhere in the text.

    Between the markers there may be several calls, or a list of them.
    """

    begins = Markers([TOOL_CALL])
    end = TOOL_CALL_END

    def _read(self) -> Reading[None]:
        before = ""
        while marker := (yield from self.until(self.begins)):
            after = yield from self.calls(before + marker)
            before = ""
            if after is not None:
                ended = (yield from self.literal(self.end)) is not None
                before = yield from self.before_next("" if ended else after, marker)


class GraniteToolParser(HermesToolParser):
    """`<|tool_call|>[{"name": .., "arguments": {..}}, ..]`; Granite 3.1 writes Hermes' marker."""

    begins = Markers([TOOL_CALL_TOKEN, TOOL_CALL])


class Granite20bToolParser(HermesToolParser):
    """`<function_call> {"name": .., "arguments": {..}}`."""

    begins = Markers([FUNCTION_CALL])


class MiniMaxToolParser(HermesToolParser):
    """`<tool_calls>`, and then objects, a line each, up to `</tool_calls>`."""

    begins, end = Markers([TOOL_CALLS]), TOOL_CALLS_END


class Phi4MiniToolParser(HermesToolParser):
    """`functools[{"name": .., "arguments": {..}}, ..]`."""

    begins = Markers([FUNCTOOLS])


class ListToolParser(ToolParser):
    """`[{"name": .., "parameters": {..}}, ..]`: what a grammar asks of a model without a form."""

    def _read(self) -> Reading[None]:
        self.emit((yield from self.calls("")) or "")
        yield from self.rest()


class ArgumentsToolParser(ToolParser):
    """The whole text is the arguments of one tool, as a grammar asks."""

    def __init__(self, name: str, **options: object) -> None:
        self._name = name
        super().__init__(**options)  # type: ignore[arg-type]

    def _read(self) -> Reading[None]:
        char = yield from self.next_char()
        if char:
            self.give_back(char)
            self.begin_call(self._name)
            yield from self.arguments_object()
            yield from self.rest()


PYTHON_TAG = "<|python_tag|>"
_BEGINS = Markers(["{", "[", PYTHON_TAG])
# What calls begin with. So another object behind prose need not be held back up to its end.
_FIRST_KEYS = frozenset({"name", "parameters", "arguments", "type", "id"})


class Llama3JsonToolParser(ToolParser):
    """`{"name": .., "parameters": {..}}`, anywhere in the text; several may follow each other.

    An object without arguments is a call only if its name is that of a tool. So is one behind
    prose, where the names of tools are known.
    """

    needs_arguments = True

    def _read(self) -> Reading[None]:
        if self.guided:  # the grammar lets nothing but the whole turn be calls
            pending = yield from self.space()
            pending += (yield from self.literal(PYTHON_TAG)) or ""
            self.emit((yield from self.calls(pending, lists=False)) or "")
            yield from self.rest()
        while mark := (yield from self.until(_BEGINS)):
            pending = ""
            if mark == PYTHON_TAG:
                pending = mark + (yield from self.space())
                mark = yield from self.next_char()
            self.give_back(mark)
            if mark in ("{", "["):
                yield from self.bare_calls(mark, pending)
            else:
                self.emit(pending)

    def bare_calls(self, mark: str, pending: str) -> Reading[None]:
        """Reads calls, up to where none follows.

        Args:
            mark: the bracket that comes next; at least it is read.
            pending: what was read already: content if no call follows.
        """
        if mark == "[" and not (yield from self.opens_list()):
            self.emit(pending + (yield from self.next_char()))
            return
        self.emit((yield from self.calls(pending)) or "")

    def may_call(self, name: str) -> bool:
        """Whether this name makes a call of what else looks like one."""
        return not self.has_prose or self.tools is None or name in self.tools

    def may_begin(self, key: str) -> bool:
        """As `ToolParser.may_begin`."""
        return not self.has_prose or key in _FIRST_KEYS


_FENCES = {"```json": "```", "```": "```", TOOL_CALL: TOOL_CALL_END, "[TOOL_CALLS]": ""}
_LONGER = {"```": "json", "[": "TOOL_CALLS]"}  # what makes a longer marker of one
_XLAM_BEGINS = Markers(["{", "[", "```", TOOL_CALL])


class XlamToolParser(Llama3JsonToolParser):
    """A list of calls: alone, behind prose, in a fence of Markdown, or between other markers."""

    def _read(self) -> Reading[None]:
        while mark := (yield from self.until(_XLAM_BEGINS)):
            if mark in _LONGER:
                mark += (yield from self.literal(_LONGER[mark])) or ""
            fenced, char = "", mark
            if mark in _FENCES:
                fenced = mark + (yield from self.space())
                char = yield from self.next_char()
            self.give_back(char)
            if char not in ("{", "["):
                self.emit(fenced)
                continue
            number = self.num_calls
            yield from self.bare_calls(char, fenced)
            if self.num_calls > number and _FENCES.get(mark):
                yield from self._end_of(_FENCES[mark])

    def _end_of(self, fence: str) -> Reading[None]:
        blank = yield from self.space()
        if (yield from self.literal(fence)) is None:
            self.emit(blank)
