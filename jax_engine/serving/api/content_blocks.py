"""A turn as a sequence of blocks: stretches of reasoning, of text, and calls of tools.

The Responses API calls them items, the Messages API content blocks. Each block begins, grows and
ends before the next begins.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from jax_engine.serving.parsers.parser_base import CallDelta, TurnDelta

type BlockKind = Literal["reasoning", "text", "call"]


@dataclass
class Block:
    """
    Attributes:
        index: its number in the turn.
        text: what it holds so far; of a call, its arguments.
        id, name: a call's id, and the name of its function.
        logprobs: log-probabilities of a text's tokens.
        ended: whether the model was done with it.
    """

    kind: BlockKind
    index: int
    text: str = ""
    id: str = ""
    name: str = ""
    logprobs: list[Any] = field(default_factory=list)
    ended: bool = False


@dataclass(frozen=True)
class BlockEvent:
    """What happens to a block; `text` and `logprobs` are what is new."""

    what: Literal["begin", "grow", "end"]
    block: Block
    text: str = ""
    logprobs: list[Any] = field(default_factory=list)


@dataclass
class Blocks:
    """The blocks of a turn so far."""

    all: list[Block] = field(default_factory=list)
    _call: int | None = None
    _space: str = ""
    _waiting: list[Any] = field(default_factory=list)

    def take(self, turn: TurnDelta, logprobs: list[Any] | None = None) -> Iterator[BlockEvent]:
        """Adds what is new. White space alone waits for text to follow: beside calls it is none.

        Args:
            logprobs: those of the new tokens. Tokens whose text comes later wait for it.
        """
        self._waiting += logprobs or ()
        if turn.reasoning:
            yield from self._grow("reasoning", turn.reasoning)
        begin = 0
        for piece in turn.calls:
            end = len(turn.content) if piece.at is None else piece.at
            yield from self._add_content(turn.content[begin:end])
            begin = end
            yield from self._grow_call(piece)
        yield from self._add_content(turn.content[begin:])
        if turn.reasoning or turn.calls:
            self._waiting = []

    def finish(self) -> Iterator[BlockEvent]:
        """Adds what still waits, if the turn is not one of calls."""
        if self._space and self._call is None:
            yield from self._grow_text()

    def end(self) -> Iterator[BlockEvent]:
        """Ends the block that is open, if one is."""
        if self.all and not self.all[-1].ended:
            self.all[-1].ended = True
            yield BlockEvent("end", self.all[-1])

    def begin(self, kind: BlockKind, id_: str = "", name: str = "") -> Iterator[BlockEvent]:
        """Ends the open block and begins another."""
        yield from self.end()
        self.all.append(Block(kind, len(self.all), id=id_, name=name))
        yield BlockEvent("begin", self.all[-1])

    @property
    def thoughts(self) -> list[str]:
        """The texts of its reasoning."""
        return [one.text for one in self.all if one.kind == "reasoning"]

    def _in_text(self) -> bool:
        return bool(self.all) and self.all[-1].kind == "text" and not self.all[-1].ended

    def _add_content(self, content: str) -> Iterator[BlockEvent]:
        self._space += content
        if self._space.strip() or (content and self._in_text()):
            yield from self._grow_text()

    def _grow_text(self) -> Iterator[BlockEvent]:
        text, self._space = self._space, ""
        logprobs, self._waiting = self._waiting, []
        yield from self._grow("text", text, logprobs)

    def _grow(
        self, kind: BlockKind, text: str, logprobs: list[Any] | None = None
    ) -> Iterator[BlockEvent]:
        if not self.all or self.all[-1].kind != kind:
            yield from self.begin(kind)
        yield from self._add(text, logprobs or [])

    def _grow_call(self, piece: CallDelta) -> Iterator[BlockEvent]:
        if piece.index != self._call or self.all[-1].kind != "call":
            self._call, self._space = piece.index, ""
            yield from self.begin("call", piece.id or "", piece.name or "")
        if piece.arguments:
            yield from self._add(piece.arguments, [])

    def _add(self, text: str, logprobs: list[Any]) -> Iterator[BlockEvent]:
        block = self.all[-1]
        block.text += text
        block.logprobs += logprobs
        yield BlockEvent("grow", block, text, logprobs)
