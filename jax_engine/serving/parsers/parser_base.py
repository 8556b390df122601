"""The base of all parsers: what a model says in a turn, taken apart, and reading text in pieces.

A turn holds content, reasoning, and calls of tools. A parser is a generator that gets one letter
after another. So it cannot matter how the text is cut into pieces.
"""

import re
from abc import abstractmethod
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jax_engine.errors import JaxEngineError


class ParserFailedError(JaxEngineError, RuntimeError):
    """A plugin's parser raised; its request is ended, and the server goes on."""


@dataclass(frozen=True)
class CallDelta:
    """What is new in a call of a tool.

    Attributes:
        index: the number of the call in its turn.
        arguments: what is new of a JSON object's text.
        id: given with a call's first piece, as its name is.
        at: how much of the content that is new stands before it; None: all.
    """

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None
    at: int | None = None


@dataclass(frozen=True)
class TurnDelta:
    """What is new in a turn."""

    content: str = ""
    reasoning: str = ""
    calls: list[CallDelta] = field(default_factory=list)


class Turn(Protocol):
    """Reads the text of one turn as it comes.

    Pieces of any size give, together, the same as the whole text at once.
    """

    def take(
        self, text: str, *, ended: bool, cut: bool = False, token_ids: Sequence[int] = ()
    ) -> TurnDelta:
        """
        Args:
            text: what is new.
            token_ids: the tokens that came with it, for parsers of plugins.
            ended: whether nothing follows.
            cut: whether the end is not the model's own, so that a call may lack its arguments.
        """

    @property
    def calls_tools(self) -> bool:
        """Whether a tool was called so far: then the turn ends with "tool_calls"."""


class CallReader(Protocol):
    """What reads the calls in a turn's text, once its reasoning is taken out."""

    open: bool

    @property
    def num_calls(self) -> int:
        """How many calls have begun."""

    def take(self, text: str, *, ended: bool, cut: bool = False) -> tuple[str, list[CallDelta]]:
        """What is new: content, and pieces of calls; the arguments are those of `Turn.take`."""


class ReasoningReader(Protocol):
    """What takes the reasoning out of a turn's text."""

    def take(self, text: str, *, ended: bool) -> tuple[str, str]:
        """What is new: reasoning and content."""


type Reading[T] = Generator[None, str, T]


class Markers:
    """Texts to look for."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = frozenset(texts) - {""}
        first = "".join(sorted({text[0] for text in self.texts}))
        self.first = re.compile(f"[{re.escape(first)}]" if first else "(?!)")
        self.beginnings = frozenset(t[:n] for t in self.texts for n in range(1, len(t)))


class StreamParser:
    """Reads letters, and says what they are as soon as that is certain."""

    def __init__(self) -> None:
        self._back = ""
        self._passes = False  # whether all that follows is plain text
        self._looks_for: Markers | None = None  # what begins none of these is plain text
        self._reading = self._read()
        next(self._reading)

    def feed(self, text: str, *, ended: bool) -> None:
        """Reads what is new."""
        at = 0
        while at < len(text):
            end = self._plain_up_to(text, at)
            if end > at:
                self.emit(text[at:end])
            else:
                end = at + 1
                self._reading.send(text[at])
            at = end
        while ended and not self._passes:
            try:
                self._reading.send("")
            except StopIteration:
                self._passes = True

    def _plain_up_to(self, text: str, at: int) -> int:
        """Up to where a text is plain, whatever follows."""
        if self._passes:
            return len(text)
        if self._looks_for is None:
            return at
        found = self._looks_for.first.search(text, at)
        return len(text) if found is None else found.start()

    @abstractmethod
    def _read(self) -> Reading[None]:
        """Reads everything, and returns at the end only."""

    @abstractmethod
    def emit(self, text: str) -> None:
        """Takes text that is no part of a marker or of a call."""

    def next_char(self) -> Reading[str]:
        """The next letter; "" at the end, again and again."""
        if self._back:
            char, self._back = self._back[0], self._back[1:]
            return char
        return (yield)

    def give_back(self, text: str) -> None:
        """Makes text the next to be read."""
        self._back = text + self._back

    def until(self, marks: Markers) -> Reading[str]:
        """Says all text up to a marker, which is returned; "" at the end."""
        held = ""
        while True:
            self._looks_for = None if held or self._back else marks
            char = yield from self.next_char()
            self._looks_for = None
            if not char:
                self.emit(held)
                return ""
            held += char
            if held in marks.texts:
                return held
            while held and held not in marks.beginnings:
                self.emit(held[0])
                held = held[1:]

    def rest(self) -> Reading[None]:
        """Says all that follows."""
        while self._back:
            self.emit((yield from self.next_char()))
        self._passes = True
        yield

    def space(self, others: str = "") -> Reading[str]:
        """White space and these other letters, possibly none."""
        found = ""
        while (char := (yield from self.next_char())) and (char.isspace() or char in others):
            found += char
        self.give_back(char)
        return found

    def literal(self, *texts: str) -> Reading[str | None]:
        """One of these texts; None, and nothing is read, if something else follows."""
        found = ""
        while True:
            char = yield from self.next_char()
            found += char
            if found in texts:
                return found
            if not char or not any(one.startswith(found) for one in texts):
                self.give_back(found)
                return None
