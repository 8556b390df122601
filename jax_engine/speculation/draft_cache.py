"""The cache of a draft model: each slot says what it holds.

A slot keeps the hash of the prefix whose last token was computed into it. A sequence's slots are
right as far as these hashes are those of its own prefixes; the draft model computes the rest.
Whatever moved a block meanwhile (a preemption, a fork, a copy, a prefix hit, an abort) shows as
another hash, so no event needs to be followed, and nothing can go stale.

The key and the value of a position follow from all tokens up to it. So two slots with the same hash
hold the same, whichever sequence they were computed for. The hash of a prefix is a polynomial in
its tokens, modulo 2^64: a new token adds one term, and NumPy adds many at once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, UInt64

from jax_engine.speculation.draft_runner import DraftRow, DraftRunner, Drawing, Following
from jax_engine.speculation.drafter import PendingDraft
from jax_engine.step import RequestSetup, Ticket

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that its powers never run out
_MIX, _SHIFT = np.uint64(0xBF58476D1CE4E5B9), np.uint64(29)

type Hashes = UInt64[np.ndarray, " N"]


class PrefixHashes:
    """The hashes of one sequence, which grows.

    Args:
        salt: Sequences of other salts have other hashes.

    Attributes:
        known: [N] The hash of its first i + 1 tokens, for the N tokens that it was given so far.
    """

    def __init__(self, salt: str | None = None) -> None:
        self._before = np.uint64(0 if salt is None else hash(salt) % 2**64)
        self._array = np.zeros(256, np.uint64)
        self.known: Hashes = self._array[:0]

    def upto(self, token_ids: list[int]) -> Hashes:
        """Takes the tokens behind those that it knows, and returns the hashes of all prefixes."""
        length, known = len(token_ids), len(self.known)
        if length > len(self._array):
            longer = np.zeros(2 * length, np.uint64)
            longer[:known] = self.known
            self._array = longer
        self._array[known:length] = self.beyond(token_ids[known:])
        self.known = self._array[:length]
        return self.known

    def cut(self, length: int) -> None:
        """Forgets the tokens behind the first `length`: others come in their place."""
        self.known = self._array[:length]

    def beyond(self, token_ids: list[int]) -> Hashes:
        """The hashes of longer prefixes, which end in these tokens; they are not kept."""
        start = len(self.known)
        tokens = np.array(token_ids, np.uint64) + np.uint64(1)
        tokens = (tokens * _MIX) ^ (tokens * _MIX >> _SHIFT)
        terms = tokens * _powers(start + len(token_ids))[start:]
        terms[:1] += self.known[-1] if start else self._before
        sums: Hashes = np.cumsum(terms, dtype=np.uint64)
        return sums


_table = np.ones(1, np.uint64)


def _powers(count: int) -> Hashes:
    """The first powers of the factor."""
    global _table
    if count > len(_table):
        factors = np.full(2 * count, _FACTOR)
        factors[0] = 1
        _table = np.cumprod(factors, dtype=np.uint64)
    return _table[:count]


@dataclass(frozen=True, slots=True)
class DraftTarget:
    """A sequence that is to get guesses.

    Attributes:
        token_ids: All of its tokens; they may grow later.
        num_tokens: How many there were.
        text: Their hashes.
        blocks: [N] The blocks that hold them; those behind are scratch blocks. No other sequence
            writes other tokens into them.
        most: How many guesses are drawn, at least 1.
        setup, sample: As in `CacheView`.
    """

    token_ids: list[int]
    num_tokens: int
    text: PrefixHashes
    blocks: Int32[np.ndarray, " N"]
    most: int
    setup: RequestSetup
    sample: int


class DraftCache:
    """Draws guesses, and keeps what the draft model computes for them.

    Args:
        num_blocks: Blocks that keep what they hold. The runner's others are scratch blocks, for
            tokens that have no block.
        max_num_batched_tokens: The most tokens that are computed at once. A longer prompt takes
            several calls, and has no guesses before the last of them.
    """

    def __init__(
        self, runner: DraftRunner, *, num_blocks: int, max_num_batched_tokens: int
    ) -> None:
        sizes = runner.runner.capabilities
        self._runner = runner
        self._vocab_size, self._width = sizes.vocab_size, sizes.table_width
        self._max_tokens = max_num_batched_tokens
        self._scratch = range(num_blocks, sizes.num_blocks)
        # The hash of the prefix that ends in each slot; 0: nothing that is known
        self._slots = np.zeros((num_blocks, sizes.block_size), np.uint64)

    def draw(self, wanted: Sequence[DraftTarget]) -> list[list[int] | None]:
        """The guesses for each sequence; None if its text is not computed yet.

        Raises:
            BaseException: What the runner raised; the cache is empty then.
        """
        with self._emptied_by_errors():
            return self._draw(wanted)

    def follow(
        self, pairs: Sequence[tuple[DraftTarget, PendingDraft]], verified: Ticket
    ) -> Drawing | None:
        """Draws guesses behind a step of the target that the host has not read.

        Args:
            pairs: The sequences, each as it is known, and where it stands in that step.

        Returns:
            None, and nothing is drawn, if the cache lacks more than the last known token of any.

        Raises:
            BaseException: As `draw`.
        """
        fed = sum(2 + one.num_guesses for _, one in pairs)
        if fed > self._max_tokens or any(self._lacks(want) > 1 for want, _ in pairs):
            return None
        scratch, following = iter(self._scratch), []
        for want, one in pairs:
            start = want.num_tokens - 1
            end = want.num_tokens + one.num_guesses + want.most
            # What is written there is not known yet
            self._note(want.blocks, start, np.zeros(end - start, np.uint64))
            last = self._known([want.token_ids[start]])
            table = self._table(want.blocks, end, scratch)
            row = DraftRow(want.setup, want.sample, start, last, table, want.most)
            following.append(Following(row, one.place, one.drawn, one.num_guesses))
        with self._emptied_by_errors():
            return self._runner.follow(following, verified)

    def computed(self, before: DraftTarget, blocks: Int32[np.ndarray, " N"]) -> None:
        """Notes what `follow` has computed, now that the sequence's tokens are known.

        Args:
            before: The sequence as it was then, with the hashes of all its tokens.
            blocks: Those that it has kept; between the two no step was planned.
        """
        start = before.num_tokens - 1
        self._note(blocks, start, before.text.known[start:])

    def read(self, drawing: Drawing) -> list[list[int]]:
        """The guesses of each sequence. Raises as `draw`."""
        with self._emptied_by_errors():
            return self._runner.read(drawing)

    @contextmanager
    def _emptied_by_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._slots[:] = 0
            self._runner.recover()
            raise

    def _draw(self, wanted: Sequence[DraftTarget]) -> list[list[int] | None]:
        found: list[list[int] | None] = [None] * len(wanted)
        rows = self._rows(wanted)
        drawn = self._runner.draw([row for _, row in rows]) if rows else []
        for (place, row), guesses in zip(rows, drawn, strict=True):
            if row.most:
                found[place] = guesses
                want = wanted[place]  # the last guess is drawn, and not computed
                self._note(want.blocks, row.end, want.text.beyond(guesses[:-1]))
        return found

    def _rows(self, wanted: Sequence[DraftTarget]) -> list[tuple[int, DraftRow]]:
        """Rows of the first step, with their places: those first that lack least.

        Their slots count as filled at once: all rows write before any reads, so a row may count on
        what those before it write.
        """
        scratch, budget = iter(self._scratch), self._max_tokens
        rows = []
        for place in sorted(range(len(wanted)), key=lambda i: self._lacks(wanted[i])):
            want = wanted[place]
            length, lacks = want.num_tokens, self._lacks(want)
            count = min(lacks, budget)
            if not count:
                break
            start, budget = length - lacks, budget - count
            most = want.most if count == lacks else 0
            table = self._table(want.blocks, start + count + max(0, most - 1), scratch)
            known = self._known(want.token_ids[start : start + count])
            rows.append((place, DraftRow(want.setup, want.sample, start, known, table, most)))
            self._note(want.blocks, start, want.text.known[start : start + count])
        return rows

    def _known(self, token_ids: list[int]) -> list[int]:
        """Tokens that the draft model has; others become token 0."""
        return [token if token < self._vocab_size else 0 for token in token_ids]

    def _lacks(self, want: DraftTarget) -> int:
        """How many of a sequence's last tokens the cache lacks: at least the last, to draw."""
        hashes = want.text.known
        slots = self._slots[want.blocks].reshape(-1)[: len(hashes)]
        right = slots == hashes[: len(slots)]
        valid = len(right) if right.all() else int(right.argmin())
        return len(hashes) - min(valid, len(hashes) - 1)

    def _table(
        self, blocks: Int32[np.ndarray, " N"], length: int, scratch: Iterator[int]
    ) -> Int32[np.ndarray, " W"]:
        """The sequence's blocks, and scratch blocks behind them, for `length` positions."""
        table = np.zeros(self._width, np.int32)
        count = min(len(blocks), self._width)
        table[:count] = blocks[:count]
        for place in range(count, -(-length // self._slots.shape[1])):
            table[place] = next(scratch)
        return table

    def _note(self, blocks: Int32[np.ndarray, " N"], start: int, hashes: Hashes) -> None:
        """Notes what is computed from `start` on, but in scratch blocks."""
        size = self._slots.shape[1]
        positions = np.arange(start, min(start + len(hashes), len(blocks) * size))
        self._slots[blocks[positions // size], positions % size] = hashes[: len(positions)]
