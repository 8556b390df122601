"""A turn whose parts are marked by single letters, in place of a parser of a model's own marks."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from jax_engine.outputs import CompletionOutput
from jax_engine.serving.api.chat_generation import ChatGeneration
from jax_engine.serving.parsers.parser_base import CallDelta, TurnDelta


class MarkedTurn:
    """`~` begins reasoning, `|` content, and `@` a call, whose name ends with `:`.

    "~Hm.|Hello@add:{}" thinks "Hm.", says "Hello" and calls `add`.
    """

    def __init__(self) -> None:
        self.mode, self.name, self.count = "|", "", 0

    @property
    def calls_tools(self) -> bool:
        return self.count > 0

    def take(self, text: str, *, ended: bool) -> TurnDelta:
        content = reasoning = ""
        calls: list[CallDelta] = []
        for letter in text:
            if letter in "~|@":
                self.mode, self.name = letter, ""
            elif self.mode == "~":
                reasoning += letter
            elif self.mode == "|":
                content += letter
            elif self.mode == "@" and letter != ":":
                self.name += letter
            elif self.mode == "@":
                self.mode = ":"
                calls.append(CallDelta(self.count, "", f"call_{self.count}", self.name))
                self.count += 1
            else:
                calls.append(CallDelta(self.count - 1, letter))
        return TurnDelta(content, reasoning, calls)


@contextmanager
def marked_turns() -> Iterator[None]:
    """All chats read `MarkedTurn`s."""

    def turn_delta(call: ChatGeneration, sample: CompletionOutput) -> TurnDelta:
        turn = call._turns.setdefault(sample.index, MarkedTurn())
        return turn.take(sample.text, ended=sample.finish_reason is not None)

    with patch.object(ChatGeneration, "turn_delta", turn_delta):
        yield
