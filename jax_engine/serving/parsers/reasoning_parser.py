"""The parser of reasoning: what a model says between `<think>` and `</think>` before it answers."""

from dataclasses import dataclass
from typing import Literal

from jax_engine.serving.parsers.parser_base import Markers, Reading, StreamParser

type Start = Literal["inside", "maybe", "closed"]


@dataclass(frozen=True)
class ReasoningStyle:
    """How a model writes its reasoning.

    Attributes:
        inside: it begins with reasoning even if the prompt does not end with `begin`.
    """

    begin: str = "<think>"
    end: str = "</think>"
    inside: bool = False

    def start(self, prompt: str) -> Start:
        """Whether a turn behind this prompt is inside of reasoning, or may begin it."""
        last = prompt.rstrip()
        if last.endswith(self.end):
            return "closed"
        return "inside" if self.inside or last.endswith(self.begin) else "maybe"


REASONING = {
    "deepseek_r1": ReasoningStyle(inside=True),
    "deepseek_v3": ReasoningStyle(),
    "qwen3": ReasoningStyle(),
    "glm45": ReasoningStyle(),
    "mistral": ReasoningStyle("[THINK]", "[/THINK]"),
}


def reasoning_of_template(template: str | None) -> ReasoningStyle | None:
    """What the template's markers tell."""
    for style in (REASONING["qwen3"], REASONING["mistral"]):
        if template is not None and style.end in template:
            return style
    return None


class ReasoningParser(StreamParser):
    """Splits text into reasoning and content. White space around reasoning is neither."""

    def __init__(self, style: ReasoningStyle, start: Start) -> None:
        self._style, self._start = style, start
        self._end = Markers([style.end])
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
        if self._start != "closed":
            before = yield from self.space()
            begun = yield from self.literal(self._style.begin)
            if begun is None and self._start == "maybe":
                self.emit(before)
            else:
                self.is_reasoning = True
                yield from self.space()
                yield from self.until(self._end)
                yield from self.space()
                self.is_reasoning = False
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
