"""Readers of calls that are JSON objects: Hermes and Qwen, Llama 3, and a plain list."""

from jax_engine.serving.openai.tools.call_reader import CallReader
from jax_engine.serving.openai.tools.letters import Marks, Reading

TOOL_CALL, TOOL_CALL_END = "<tool_call>", "</tool_call>"
PYTHON_TAG = "<|python_tag|>"
_BEGINS = Marks([TOOL_CALL])


class HermesReader(CallReader):
    """`<tool_call>{"name": .., "arguments": {..}}</tool_call>`, anywhere in the text."""

    def _read(self) -> Reading[None]:
        while marker := (yield from self.until(_BEGINS)):
            before = yield from self.space()
            text = yield from self.call_object()
            if text is not None:
                self.say(marker + before + text)
                continue
            after = yield from self.space()
            if (yield from self.literal(TOOL_CALL_END)) is None:
                self.say(after)


class LlamaReader(CallReader):
    """The whole text is `{"name": .., "parameters": {..}}`, or several with ";" between them."""

    needs_arguments = True

    def _read(self) -> Reading[None]:
        said = yield from self.space()
        tag = yield from self.literal(PYTHON_TAG)
        said += tag or ""
        while True:
            said += yield from self.space()
            text = yield from self.call_object()
            if text is not None:
                self.say(said + text)
                break
            said = yield from self.space()
            if (yield from self.literal(";")) is None:
                self.say(said)
                break
            said += ";"
        yield from self.rest()


class ListReader(CallReader):
    """`[{"name": .., "parameters": {..}}, ..]`: what a grammar asks of a model without a form."""

    def _read(self) -> Reading[None]:
        said = yield from self.literal("[")
        while said:
            text = yield from self.call_object()
            if text is not None:  # `max_tokens` has cut it before its arguments
                self.say(said + text)
                break
            said = yield from self.literal(", ")
        else:
            yield from self.literal("]")
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
