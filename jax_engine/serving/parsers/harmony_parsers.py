"""The parsers of harmony, the form of gpt-oss: a turn is a row of messages, each in a channel.

    <|channel|>analysis<|message|>So ..<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{..}<|call|>
    <|start|>assistant<|channel|>final<|message|>Yes<|return|>

`analysis` is reasoning. The answer is in `final`, and what is said before a call in `commentary`. A
message to a function is a call: the parser of reasoning leaves it as it is for that of calls.
"""

from dataclasses import dataclass

from jax_engine.config.reasoning_markers import Start
from jax_engine.guided.lark_grammar import Lark
from jax_engine.serving.parsers.parser_base import Markers, Reading
from jax_engine.serving.parsers.reasoning_parser import ReasoningParser, ReasoningStyle
from jax_engine.serving.parsers.tool_parser import ToolParser, json_text

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
HARMONY = (START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS)
TO_FUNCTION = "to=functions."
_ENDS = Markers(ENDS)
MAX_HEADER = 512  # letters, where a call is decided


@dataclass(frozen=True)
class HarmonyStyle(ReasoningStyle):
    """A prompt ends with `<|start|>assistant`, where a turn may begin with any channel."""

    @property
    def markers(self) -> tuple[str, ...]:
        """As `ReasoningStyle.markers`."""
        return HARMONY

    def parser(self, start: Start) -> ReasoningParser:
        """As `ReasoningStyle.parser`."""
        return HarmonyParser(self, start)

    def before_answer(self, lark: Lark, start: Start) -> str:
        """As `ReasoningStyle.before_answer`."""
        if start == "closed":
            return ""
        start_of_turn = f'{lark.marker(START)} "assistant"'
        thought = f"{lark.up_to(ENDS[0])} {start_of_turn}"
        if start == "maybe":
            begin = f'{lark.marker(CHANNEL)} "analysis" {lark.marker(MESSAGE)}'
            thought = f"({begin} {thought})?"
        return f'{thought} {lark.marker(CHANNEL)} "final" {lark.marker(MESSAGE)}'


class HarmonyParser(ReasoningParser):
    """Splits messages into reasoning and content; calls stay as they are."""

    def _read(self) -> Reading[None]:
        if self._start == "inside":
            yield from self.until(_ENDS)
        while True:
            self.is_reasoning = False
            header = yield from self._header()
            is_call = TO_FUNCTION in header
            self.is_reasoning = header.startswith(f"{CHANNEL}analysis") and not is_call
            if is_call:
                self.emit(header)
            elif self.is_reasoning:
                yield from self.space()
            end = yield from self.until(_ENDS)
            if is_call and end:
                self.emit(end)
            if not end:
                break
        yield from self.rest()

    def _header(self) -> Reading[str]:
        """A message's beginning, from its channel up to its text; "" if it has none."""
        yield from self.literal(f"{START}assistant")
        header = yield from self.literal(CHANNEL, " to=")
        if header is None:
            return ""
        while len(header) < MAX_HEADER and (char := (yield from self.next_char())):
            header += char
            if header.endswith(MESSAGE):
                return header
        self.give_back(header)
        return ""


class HarmonyToolParser(ToolParser):
    """Messages to functions. The recipient stands in the channel, or before it."""

    begins = Markers([f"{CHANNEL}commentary {TO_FUNCTION}", f" {TO_FUNCTION}"])

    def _read(self) -> Reading[None]:
        while mark := (yield from self.until(self.begins)):
            name = yield from self.name()
            between = ""
            while len(between) < MAX_HEADER and not between.endswith(MESSAGE):
                char = yield from self.next_char()
                between += char
                if not char:
                    break
            held = mark + name + between
            text, whole = "", False
            if between.endswith(MESSAGE):
                held += yield from self.space()
                text, whole = yield from self.json_object()
            called = self._called(f'{{"name": {json_text(name)}, "arguments": {text}}}')
            if not whole or called is None:
                self.emit(held + text)
                continue
            self.call(*called)
            yield from self.space()
            yield from self.literal(*ENDS)
