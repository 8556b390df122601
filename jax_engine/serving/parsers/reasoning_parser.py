"""The parser of reasoning: what a model says between `<think>` and `</think>` before it answers."""

from dataclasses import dataclass

from jax_engine.config.reasoning_markers import ReasoningMarkers, Start
from jax_engine.guided.lark_grammar import Lark
from jax_engine.serving.parsers.parser_base import Markers, Reading, StreamParser


@dataclass(frozen=True)
class ReasoningStyle(ReasoningMarkers):
    """How a model writes its reasoning: the markers, with the parser and the grammar of a turn."""

    def parser(self, start: Start) -> "ReasoningParser":
        """A parser of one turn."""
        return ReasoningParser(self, start)

    def before_answer(self, lark: Lark, start: Start) -> str:
        """What a grammar lets stand before the answer; "" behind a closed reasoning."""
        if start == "closed":
            return ""
        thought = f"{lark.up_to(self.end)} /[ \\n]{{0,2}}/"
        return thought if start == "inside" else f"({lark.marker(self.begin)} {thought})?"


class ReasoningParser(StreamParser):
    """Splits text into reasoning and content. White space around reasoning is neither."""

    def __init__(self, style: ReasoningStyle, start: Start) -> None:
        self._style, self._start = style, start
        self._end = Markers([style.end, style.or_end])
        self.is_reasoning = start == "inside"
        self._gap: list[str] = []
        self._reasoning: list[str] = []
        self._content: list[str] = []
        super().__init__()

    def take(self, text: str, *, ended: bool) -> tuple[str, str]:
        """What is new: reasoning and content."""
        self.feed(text, ended=ended)
        new = "".join(self._reasoning), "".join(self._content)
        self._reasoning, self._content = [], []
        return new

    def _read(self) -> Reading[None]:
        style = self._style
        if self._start != "closed":
            before = yield from self.space()
            begun = yield from self.literal(*filter(None, (style.begin, style.or_begin)))
            if begun is None and self._start == "maybe":
                self.emit(before)
            else:
                self.is_reasoning = True
                yield from self.space()
                yield from self.until(self._end)
                yield from self.space()
                self.is_reasoning = False
        if style.answer and (yield from self.literal(style.answer)) is not None:
            yield from self.space()
            yield from self.until(Markers(["\n" + style.answer_end, style.answer_end]))
        yield from self.rest()

    def emit(self, text: str) -> None:
        """As `StreamParser.emit`: reasoning or content."""
        if not self.is_reasoning:
            self._content.append(text)
            return
        stripped = text.rstrip()
        if stripped:
            self._reasoning += [*self._gap, stripped]
            self._gap = []
        self._gap.append(text[len(stripped) :])
