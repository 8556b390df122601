"""The parser of calls whose markers stand around a name and a JSON object: DeepSeek's, Kimi's."""

from collections.abc import Callable
from dataclasses import dataclass

from jax_engine.serving.parsers.parser_base import Reading
from jax_engine.serving.parsers.section_tool_parser import SectionMarkers, SectionToolParser
from jax_engine.serving.parsers.tool_parser import json_text

Parts = tuple[str, ...]


@dataclass(frozen=True)
class CallMarkers:
    """What stands around calls. Each part of a text is a special token, or plain letters.

    Attributes:
        section, section_end: around all calls of a turn.
        begin: before the name of a call.
        between: between the name and the arguments.
        end: behind the arguments.
    """

    section: str
    section_end: str
    begin: Parts
    between: Parts
    end: Parts


DEEPSEEK_V3 = CallMarkers(
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    ("<｜tool▁call▁begin｜>", "function", "<｜tool▁sep｜>"),
    ("\n```json\n",),
    ("\n```", "<｜tool▁call▁end｜>"),
)
DEEPSEEK_V31 = CallMarkers(
    DEEPSEEK_V3.section,
    DEEPSEEK_V3.section_end,
    ("<｜tool▁call▁begin｜>",),
    ("<｜tool▁sep｜>",),
    ("<｜tool▁call▁end｜>",),
)
KIMI_K2 = CallMarkers(
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    ("<|tool_call_begin|>",),
    ("<|tool_call_argument_begin|>",),
    ("<|tool_call_end|>",),
)


class MarkedToolParser(SectionToolParser):
    """Calls whose arguments are JSON behind a name."""

    markers: CallMarkers

    @property
    def section(self) -> SectionMarkers:
        """As `SectionToolParser.section`."""
        marks = self.markers
        return SectionMarkers(marks.section, marks.section_end, "".join(marks.begin))

    def _call(self, held: str) -> Reading[bool]:
        """As `SectionToolParser._call`."""
        named = yield from self.name()
        between = yield from self.literal("".join(self.markers.between))
        held += named + (between or "")
        name, id = self.name_and_id(named)
        if self.guided and between is not None:
            self.begin_call(name, id)
            yield from self.arguments_object()
            yield from self._end()
            return True
        text, whole = "", False
        if name and between is not None:
            held += yield from self.space()
            text, whole = yield from self.json_object()
        called = self._called(f'{{"name": {json_text(name)}, "arguments": {text}}}')
        if not whole or called is None:
            self.emit(held + text)
            return False
        self.call(*called, id)
        yield from self._end()
        return True

    def _end(self) -> Reading[None]:
        blank = yield from self.space()
        if (yield from self.literal("".join(self.markers.end).lstrip())) is None:
            self.give_back(blank)

    def name_and_id(self, text: str) -> tuple[str, str]:
        """The name of a tool, and the id of the call; "": it has none."""
        return text, ""


class DeepSeekV3ToolParser(MarkedToolParser):
    """The type, the name, and the arguments in a fence of Markdown."""

    markers = DEEPSEEK_V3


class DeepSeekV31ToolParser(MarkedToolParser):
    """The name and the arguments."""

    markers = DEEPSEEK_V31


class KimiK2ToolParser(MarkedToolParser):
    """The call's id, `functions.NAME:NUMBER`, and the arguments. The model asks for its ids."""

    markers = KIMI_K2

    def name_and_id(self, text: str) -> tuple[str, str]:
        """As `MarkedToolParser.name_and_id`."""
        name, colon, number = text.removeprefix("functions.").rpartition(":")
        if not colon or not number.isdecimal():
            return text.removeprefix("functions."), ""
        return name, text


def marker_texts(marks: CallMarkers) -> tuple[str, ...]:
    """The texts that may be special tokens."""
    parts = (*marks.begin, *marks.between, *marks.end)
    found = (marks.section, marks.section_end, *(one for one in parts if one.startswith("<")))
    return tuple(dict.fromkeys(found))


def written(marks: CallMarkers, name: str, arguments: str, text: Callable[[str], str]) -> str:
    """A call, in the words of a grammar.

    Args:
        name, arguments: in its words.
        text: gives those of a part.
    """
    parts = [*map(text, marks.begin), name, *map(text, marks.between), arguments]
    return " ".join([*parts, *map(text, marks.end)])
