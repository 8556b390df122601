"""A draft model: a small model with the same vocabulary draws what the large one is to verify.

Its keys and values lie in a cache of its own, under the same block numbers: block 7 of the draft's
cache holds for the draft model the tokens that block 7 of the target's cache holds for the target.
So the target's block table is the draft's, and nothing is allocated twice.

What a slot of the draft's cache holds is decided by its contents alone. Each slot keeps the hash
of the prefix whose last token was computed into it (`prefix_hashes`). A sequence's slots are right
as far as these hashes are those of its own prefixes; the draft model computes the rest. Whatever
moved a block meanwhile (a preemption, a fork, a copy, a prefix hit, an abort) shows as another
hash, so no event needs to be followed, and nothing can go stale.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32

from jax_engine.speculation.draft_runner import DraftRow, DraftRunner
from jax_engine.speculation.drafter import Asked, Held
from jax_engine.speculation.prefix_hashes import Hashes, PrefixHashes


class DraftModelDrafter:
    """Draws guesses with a draft model.

    Args:
        num_blocks: Blocks of the target's cache. The draft's has more: scratch blocks, where the
            tokens lie for which the target has no block yet.
        max_model_len: The longest text that the draft model reads, in tokens.
        max_num_batched_tokens: The most tokens that it computes at once. A longer prompt takes
            several steps of the target, which have no guesses for that sequence.
    """

    def __init__(
        self,
        runner: DraftRunner,
        *,
        num_blocks: int,
        max_model_len: int,
        max_num_batched_tokens: int,
    ) -> None:
        sizes = runner.runner.capabilities
        self._runner, self._max_len = runner, max_model_len
        self._vocab_size, self._width = sizes.vocab_size, sizes.table_width
        self._max_tokens = max_num_batched_tokens
        self._scratch = range(num_blocks, sizes.num_blocks)
        # The hash of the prefix that ends in each slot; 0: nothing that is known
        self._slots = np.zeros((num_blocks, sizes.block_size), np.uint64)
        self._hashes: dict[int, PrefixHashes] = {}
        self._numbers: dict[int, int] = {}

    def propose(self, asked: Sequence[Asked]) -> list[list[int] | None]:
        try:
            found = self._propose(asked)
        except BaseException:
            self._slots[:] = 0
            self._runner.recover()
            raise
        return [found[one.seq_id] for one in asked]

    def forget(self, seq_ids: set[int]) -> None:
        ended = {self._numbers.pop(seq_id) for seq_id in seq_ids & self._numbers.keys()}
        for seq_id in seq_ids:
            self._hashes.pop(seq_id, None)
        self._runner.close(ended - set(self._numbers.values()))

    def _propose(self, asked: Sequence[Asked]) -> dict[int, list[int] | None]:
        found: dict[int, list[int] | None] = {}
        wanted = []
        for one in asked:
            held = one.held
            assert held is not None, "all requests were opened"
            # The last guess is drawn, and not computed
            most = min(one.most, held.room, self._max_len + 1 - len(one.token_ids))
            found[one.seq_id] = None if most > 0 else []
            if most > 0 and held.own_end:
                hashes = self._hashes.setdefault(one.seq_id, PrefixHashes())
                wanted.append(_Wanted(one, held, hashes.upto(one.token_ids), most))
        rows = self._rows(wanted)
        if rows:
            drawn = self._runner.draw([row for _, row in rows])
            for (want, row), guesses in zip(rows, drawn, strict=True):
                if row.most:
                    seq_id = want.one.seq_id
                    found[seq_id] = guesses
                    beyond = self._hashes[seq_id].beyond(guesses[:-1])
                    self._note(want.held.blocks, row.end, beyond)
        return found

    def _rows(self, wanted: list["_Wanted"]) -> list[tuple["_Wanted", DraftRow]]:
        """Rows of the first step, and the slots that it fills: those first that lack least.

        All rows write before any reads. So a row may count on what those before it write.
        """
        scratch, budget = iter(self._scratch), self._max_tokens
        rows = []
        for want in sorted(wanted, key=self._lacks):
            one, held, length = want.one, want.held, len(want.hashes)
            lacks = self._lacks(want)
            count = min(lacks, budget)
            if not count:
                break
            start, budget = length - lacks, budget - count
            most = want.most if count == lacks else 0
            table = self._table(held.blocks, start + count + max(0, most - 1), scratch)
            known = [
                token if token < self._vocab_size else 0
                for token in one.token_ids[start : start + count]
            ]
            self._numbers[one.seq_id] = held.setup.number
            rows.append((want, DraftRow(held.setup, held.sample, start, known, table, most)))
            self._note(held.blocks, start, want.hashes[start : start + count])
        return rows

    def _lacks(self, want: "_Wanted") -> int:
        """How many of a sequence's last tokens the cache lacks: at least the last, to draw."""
        hashes = want.hashes
        slots = self._slots[want.held.blocks].reshape(-1)[: len(hashes)]
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


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A sequence for which the draft model can guess.

    Attributes:
        hashes: Of all its prefixes.
        most: How many guesses are drawn.
    """

    one: Asked
    held: Held
    hashes: Hashes
    most: int


def scratch_blocks(most: int, max_drafts: int, max_num_seqs: int, block_size: int) -> int:
    """The most scratch blocks that the sequences of a step take.

    A sequence with k guesses computes k tokens that have no slot yet: its last, and all guesses
    but the last.

    Args:
        most: Guesses of a sequence.
        max_drafts: Guesses of all together, which share them evenly.
    """
    counts = range(1, min(max_drafts, max_num_seqs) + 1)
    return max(n * -(-min(most, max_drafts // n) // block_size) for n in counts)
