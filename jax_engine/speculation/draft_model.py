"""A draft model: a small model with the same vocabulary draws what the large one is to verify.

Its keys and values lie in a cache of its own (`draft_cache`), under the same block numbers: block 7
of the draft's cache holds for the draft model the tokens that block 7 of the target's cache holds
for the target. So the target's block table is the draft's, and nothing is allocated twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jax_engine.speculation.draft_cache import DraftCache, DraftTarget, PrefixHashes
from jax_engine.speculation.draft_runner import DraftRunner, Drawing
from jax_engine.speculation.drafter import CacheView, DraftRequest, PendingDraft
from jax_engine.step import Ticket


@dataclass(frozen=True)
class LookaheadDraft:
    """Guesses behind a step of the target that was not read when they were launched.

    Attributes:
        wanted: What was known of each sequence, by seq_id, in the order of `drawing`.
    """

    drawing: Drawing
    wanted: dict[int, DraftTarget]

    def unread(self) -> dict[int, list[int]]:
        """Each sequence's guesses as tokens of a step that is `Unread` from `drawing.tickets`."""
        places = zip(self.wanted, self.drawing.places, strict=True)
        return {seq_id: [-(place + 1) for place in guesses] for seq_id, guesses in places}


class DraftModelDrafter:
    """Draws guesses with a draft model.

    Args:
        num_blocks: Blocks of the target's cache. The draft's has more: scratch blocks, where the
            tokens lie for which the target has no block yet.
        max_model_len: The longest text that the draft model reads, in tokens.
        max_num_batched_tokens: As in `DraftCache`.
    """

    def __init__(
        self,
        runner: DraftRunner,
        *,
        num_blocks: int,
        max_model_len: int,
        max_num_batched_tokens: int,
    ) -> None:
        self._runner, self._max_len = runner, max_model_len
        self._cache = DraftCache(
            runner, num_blocks=num_blocks, max_num_batched_tokens=max_num_batched_tokens
        )
        self._hashes: dict[int, PrefixHashes] = {}
        self._numbers: dict[int, int] = {}

    def propose(self, asked: Sequence[DraftRequest]) -> list[list[int] | None]:
        found: dict[int, list[int] | None] = {}
        wanted: dict[int, DraftTarget] = {}
        for one in asked:
            held = one.held
            assert held is not None, "all requests were opened"
            # The last guess is drawn, and not computed
            most = min(one.most, held.room, self._max_len + 1 - len(one.token_ids))
            found[one.seq_id] = None if most > 0 else []
            if most > 0 and held.own_end:
                wanted[one.seq_id] = self._wanted(one, held, most)
        found |= zip(wanted, self._cache.draw(list(wanted.values())), strict=True)
        return [found[one.seq_id] for one in asked]

    @property
    def follows(self) -> bool:
        """Whether it may go on behind a step that the host has not read."""
        return self._runner.runner.capabilities.accepts_guesses

    def follow(self, verifying: Sequence[PendingDraft], ticket: Ticket) -> LookaheadDraft | None:
        """Launches guesses behind those that a step verifies; None if that cannot be.

        All of these may be right, so a sequence that would be at its end then gets no guesses.
        The step has made the blocks writable for each sequence, so their ends are its own.
        """
        wanted: dict[int, DraftTarget] = {}
        following: list[PendingDraft] = []
        for one in verifying:
            asked, held, count = one.asked, one.asked.held, one.num_guesses
            assert held is not None, "all requests were opened"
            room = min(held.room, self._max_len + 1 - len(asked.token_ids)) - count - 1
            if room > 0:
                kept = held._replace(blocks=held.blocks.copy())
                wanted[asked.seq_id] = self._wanted(asked, kept, min(asked.most, room))
                following.append(one)
        pairs = list(zip(wanted.values(), following, strict=True))
        drawing = self._cache.follow(pairs, ticket) if pairs else None
        return None if drawing is None else LookaheadDraft(drawing, wanted)

    def settle(self, behind: LookaheadDraft, asked: Sequence[DraftRequest]) -> None:
        """Takes note of what `follow` has computed of the tokens that are known now.

        Args:
            asked: Sequences that go on, among them those of `behind`.
        """
        for one in asked:
            before = behind.wanted.get(one.seq_id)
            if before is not None and one.held is not None:
                before.text.upto(one.token_ids)
                self._cache.computed(before, one.held.blocks)

    def read(self, behind: LookaheadDraft) -> dict[int, list[int]]:
        """The guesses of each sequence, by seq_id."""
        return dict(zip(behind.wanted, self._cache.read(behind.drawing), strict=True))

    def _wanted(self, one: DraftRequest, held: CacheView, most: int) -> DraftTarget:
        text = self._hashes.setdefault(one.seq_id, PrefixHashes(held.salt))
        text.upto(one.token_ids)
        self._numbers[one.seq_id] = held.setup.number
        num_tokens = len(one.token_ids)
        return DraftTarget(
            one.token_ids, num_tokens, text, held.blocks, most, held.setup, held.sample
        )

    def promises(self, one: DraftRequest) -> bool:
        """A model always has something to say."""
        return True

    def forget(self, seq_ids: set[int]) -> None:
        ended = {self._numbers.pop(seq_id) for seq_id in seq_ids & self._numbers.keys()}
        for seq_id in seq_ids:
            self._hashes.pop(seq_id, None)
        self._runner.close(ended - set(self._numbers.values()))


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
