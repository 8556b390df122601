"""Leaves special tokens out of a text that shows them because a marker is one of them."""

from jax_engine.serving.openai.tools.letters import LetterReader, Marks, Reading


class SpecialReader(LetterReader):
    """Text without these tokens."""

    def __init__(self, hidden: Marks) -> None:
        self._hidden = hidden
        self._text: list[str] = []
        super().__init__()

    def take(self, text: str, *, ended: bool) -> str:
        """What is new."""
        self.feed(text, ended=ended)
        new, self._text = "".join(self._text), []
        return new

    def _read(self) -> Reading[None]:
        while (yield from self.until(self._hidden)):
            pass

    def say(self, text: str) -> None:
        """As `LetterReader.say`."""
        self._text.append(text)
