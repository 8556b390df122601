"""Readers of calls that are JSON objects: Hermes, Qwen, Granite, a plain list, arguments alone."""

from jax_engine.serving.openai.tools.call_reader import CallReader
from jax_engine.serving.openai.tools.letters import Marks, Reading

TOOL_CALL, TOOL_CALL_END = "<tool_call>", "</tool_call>"
TOOL_CALL_TOKEN = "<|tool_call|>"


class HermesReader(CallReader):
    """`<tool_call>{"name": .., "arguments": {..}}</tool_call>`, anywhere in the text.

    Between the markers there may be several calls, or a list of them.
    """

    begins = Marks([TOOL_CALL])

    def _read(self) -> Reading[None]:
        before = ""
        while marker := (yield from self.until(self.begins)):
            after = yield from self.calls(before + marker)
            before = ""
            if after is not None:
                ended = (yield from self.literal(TOOL_CALL_END)) is not None
                before = yield from self.before_next("" if ended else after, marker)


class GraniteReader(HermesReader):
    """`<|tool_call|>[{"name": .., "arguments": {..}}, ..]`; Granite 3.1 writes Hermes' marker."""

    begins = Marks([TOOL_CALL_TOKEN, TOOL_CALL])


class ListReader(CallReader):
    """`[{"name": .., "parameters": {..}}, ..]`: what a grammar asks of a model without a form."""

    def _read(self) -> Reading[None]:
        self.say((yield from self.calls("")) or "")
        yield from self.rest()


class ArgumentsReader(CallReader):
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
