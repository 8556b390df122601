"""Reader of Mistral's calls, of older and newer models."""

import uuid

from jax_engine.serving.openai.tools.call_reader import CallReader, json_text
from jax_engine.serving.openai.tools.letters import Marks, Reading

TOOL_CALLS, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_BEGINS = Marks([TOOL_CALLS])


def mistral_id() -> str:
    """A new id of a call: Mistral's templates refuse any other length."""
    return uuid.uuid4().hex[:9]


class MistralReader(CallReader):
    """`[TOOL_CALLS]`, and then a list of objects (older), or `name[ARGS]{..}` or `name{..}`."""

    def _read(self) -> Reading[None]:
        while marker := (yield from self.until(_BEGINS)):
            before = yield from self.space()
            if (yield from self.literal("[")) is not None:
                yield from self._list(marker + before + "[")
            else:
                yield from self._named(marker + before)

    def _list(self, said: str) -> Reading[None]:
        while True:
            said += yield from self.space()
            text = yield from self.call_object()
            if text is not None:
                self.say(said + text)
                return
            said = yield from self.space()
            found = yield from self.literal(",", "]")
            if found == ",":
                said += ","
                continue
            if found is None:
                self.say(said)
            return

    def _named(self, said: str) -> Reading[None]:
        name = yield from self._name()
        said += name
        mark = None
        for one in (CALL_ID, ARGS):
            mark = (yield from self.literal(one)) if name else None
            said += mark or ""
            if mark == CALL_ID:
                said += yield from self._name()
        if self.guided and mark == ARGS:  # without it, `max_tokens` may have cut the name
            self.begin_call(name)
            yield from self.arguments_object()
            return
        text, whole = ("", False) if not name else (yield from self.json_object())
        called = self._called(f'{{"name": {json_text(name)}, "arguments": {text}}}')
        if whole and called is not None:
            self.call(*called)
        else:
            self.say(said + text)

    def _name(self) -> Reading[str]:
        name = ""
        while (char := (yield from self.next_char())) and (char.isalnum() or char in "_-./:"):
            name += char
        self.give_back(char)
        return name
