"""The parser of calls between markers, one or several of them in a section with markers of its own.

A subclass reads what stands between a call's markers.
"""

from abc import abstractmethod
from typing import NamedTuple

from jax_engine.serving.parsers.parser_base import Markers, Reading
from jax_engine.serving.parsers.tool_parser import SEPARATORS, ToolParser


class SectionMarkers(NamedTuple):
    """What says that calls come.

    Attributes:
        section, section_end: around all calls of a turn; `section_end` is "" where the end of a
            section is that of its one call.
        call: before one call; "" where `section` is followed by the call itself.
    """

    section: str
    section_end: str
    call: str


class SectionToolParser(ToolParser):
    """Calls, anywhere in the text; the section's own markers may be missing."""

    @property
    @abstractmethod
    def section(self) -> SectionMarkers:
        """The markers of this form."""

    def _read(self) -> Reading[None]:
        marks, held = self.section, ""
        begins = Markers([marks.section, marks.call])
        while mark := (yield from self.until(begins)):
            held += mark
            if mark == marks.section:
                held += yield from self.space()
                begun = (yield from self.literal(marks.call)) if marks.call else ""
                if begun is None:
                    self.emit(held)
                    held = ""
                    continue
                held += begun
            held = (yield from self._behind()) if (yield from self._call(held)) else ""

    def _behind(self) -> Reading[str]:
        """What stands behind a call, if another one follows; else it is emitted."""
        marks = self.section
        held = yield from self.space(SEPARATORS)
        if marks.section_end and (yield from self.literal(marks.section_end)) is not None:
            held = yield from self.space(SEPARATORS)
        following = yield from self.literal(*filter(None, (marks.section, marks.call)))
        if following is None:
            self.emit(held)
            return ""
        self.give_back(following)
        return held

    @abstractmethod
    def _call(self, held: str) -> Reading[bool]:
        """Reads a call behind its first marker; if it is none, emits it, behind `held`."""
