"""What the blocks of both pools hold, and what of it can be found: kept beside the target.

The key and value of a token depend on it and on all tokens before it, on the salt and on the
adapter. So a slot holds the number of a *text*: everything up to its token.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Key = tuple[str | None, str | None]
"""Salt and adapter."""


class Texts:
    """Numbers of texts: equal numbers mean equal salt, adapter and tokens."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, object], int] = {}

    def chain(self, key: Key, tokens: Iterable[int], before: int | None = None) -> list[int]:
        """The texts that end with each of these tokens, which follow the text `before`."""
        text = self._number(key, None) if before is None else before
        chain = []
        for token in tokens:
            text = self._number(text, token)
            chain.append(text)
        return chain

    def _number(self, before: object, token: object) -> int:
        return self._numbers.setdefault((before, token), len(self._numbers))


@dataclass
class Tracked:
    """A sequence as its scheduler knows it.

    Attributes:
        end: Positions below it are computed, or are being computed by this step.
        start: Positions from here to `end`, and the guesses, are being computed by this step.
        reach: The most tokens, guesses too, that it was ever given room for.
        num_offered: Its first full blocks, which have been in `Pool.primary` or were found.
        caching: False once it was moved: its blocks need not be found any more.
        alone: Nobody else has taken a block since it was opened, nor it one with a text of its own.
    """

    seq: int
    key: Key
    tokens: list[int]
    chain: list[int]
    family: int
    end: int = 0
    start: int = 0
    reach: int = 0
    in_step: bool = False
    guesses: list[int] = field(default_factory=list)
    num_accepted: int = 0
    table: list[int] = field(default_factory=list)
    place: str = "gpu"
    num_offered: int = 0
    caching: bool = True
    alone: bool = True


class Pool:
    """One pool's slots, and of the full blocks in it those that an exact cache must find.

    Attributes:
        slots: The texts in each block; None where nothing was written.
        pending: The slots that each sequence of the step writes.
        primary: The block of each text that ends a block: the first that held it, until that
            is handed out again.
        unclear: The blocks that have been the first with another such text, as far as is known.
        dropped: Blocks and texts that their sequences meant for them, and never wrote.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.slots: dict[int, list[int | None]] = {}
        self.pending: dict[int, list[tuple[int, int, int]]] = {}
        self.primary: dict[int, int] = {}
        self.unclear: dict[int, set[int]] = {}
        self._offered: dict[int, int] = {}
        self._freed: dict[int, int] = {}
        self._clock = 0
        self.dropped: set[tuple[int, int]] = set()

    def take(self, block: int) -> None:
        """The block was handed out to be written: whatever it held is gone."""
        self.slots[block] = [None] * self.block_size
        self.forget(block)
        self._freed.pop(block, None)

    def touch(self, block: int) -> None:
        """The block was found, and is in use again."""
        self._freed.pop(block, None)

    def forget(self, block: int) -> None:
        text = self._offered.pop(block, None)
        if text is not None and self.primary.get(text) == block:
            del self.primary[text]
        for text in [text for text, blocks in self.unclear.items() if block in blocks]:
            self.unclear[text].remove(block)
            if not self.unclear[text]:
                del self.unclear[text]

    def forget_all(self) -> None:
        self.primary.clear()
        self.unclear.clear()
        self._offered.clear()

    def read(self, block: int, slot: int) -> int | None:
        return self.slots[block][slot] if block in self.slots else None

    def read_all(self, table: Iterable[int]) -> list[int | None]:
        """What is in the slots of these blocks, one block behind the other."""
        nothing = [None] * self.block_size
        return [text for block in table for text in self.slots.get(block, nothing)]

    def write(self, seq: int, table: Sequence[int], start: int, texts: Sequence[int]) -> None:
        """This step writes these texts at the positions from `start`."""
        for position, text in enumerate(texts, start):
            block, slot = table[position // self.block_size], position % self.block_size
            self.slots.setdefault(block, [None] * self.block_size)[slot] = text
            self.pending.setdefault(seq, []).append((block, slot, text))

    def unwrite(self, seq: int) -> None:
        """The step will not write what this sequence scheduled."""
        for block, slot, text in self.pending.pop(seq, []):
            if self.read(block, slot) == text:
                self.slots[block][slot] = None
                self.dropped.add((block, text))
            self.forget(block)

    def unsure(self, seq: int) -> None:
        """What this sequence scheduled is written; it may be found, and need not be."""
        for block in {block for block, _, _ in self.pending.get(seq, [])}:
            text = self._offered.get(block)
            self.forget(block)
            if text is not None:
                self.unclear.setdefault(text, set()).add(block)

    def is_pending(self, block: int) -> bool:
        return any(block == b for writes in self.pending.values() for b, _, _ in writes)

    def offer(self, block: int, text: int) -> None:
        """The block is full, with this text at its end."""
        if text in self.unclear:
            self.unclear[text].add(block)
        elif text not in self.primary:
            self.primary[text] = block
            self._offered[block] = text

    def note_freed(self, blocks: Iterable[int], used: set[int]) -> None:
        """Those of these blocks that are not in use have become free, in this order."""
        for block in blocks:
            if block not in used and block not in self._freed:
                self._clock += 1
                self._freed[block] = self._clock

    def older_than(self, block: int) -> list[int]:
        """Free cached blocks that were freed before this one, if it is cached."""
        if block not in self._offered or block not in self._freed:
            return []
        return [
            other
            for other, when in self._freed.items()
            if other in self._offered and when < self._freed[block]
        ]


def copy(source: Pool, target: Pool, pairs: Iterable[Sequence[int]]) -> None:
    """Copies whole blocks at once, all sources before any destination is written."""
    moved = [(to, list(source.slots.get(block, []))) for block, to in pairs]
    for to, texts in moved:
        if texts:
            target.slots[to] = list(texts)
