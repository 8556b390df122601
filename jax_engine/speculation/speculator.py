"""Asks a drafter before a step is planned, and learns from what the step accepted."""

import logging
from collections.abc import Iterable, Iterator, Sequence

from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.sequence import Sequence as TokenSequence
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.speculation.drafter import Asked, Drafter, Held
from jax_engine.speculation.pace import Pace
from jax_engine.step import RequestSetup

logger = logging.getLogger("jax_engine")
MAX_DRAFT_TOKENS = 32  # of all sequences in one step


class Speculator:
    """Guesses for the sequences of an engine.

    Args:
        vocab_size: Guesses are token ids below it.
        adaptive: Whether to guess less where few guesses were right.
        draft_cost: As in `Pace`.
    """

    def __init__(
        self,
        drafter: Drafter,
        vocab_size: int,
        *,
        adaptive: bool = True,
        draft_cost: float = 0.0,
    ) -> None:
        self._drafter, self._vocab_size = drafter, vocab_size
        self._adaptive, self._draft_cost = adaptive, draft_cost
        self._setups: dict[int, RequestSetup] = {}
        self._paces: dict[int, Pace] = {}
        self._asked: set[int] = set()

    def open(self, setup: RequestSetup) -> None:
        """A request begins."""
        self._setups[setup.number] = setup

    def close(self, number: int) -> None:
        """A request has ended."""
        self._setups.pop(number, None)

    def propose(self, scheduler: Scheduler) -> dict[int, list[int]]:
        """Guesses by seq_id, for sequences whose next step feeds their last token.

        A drafter that fails guesses nothing: it is no reason to fail a request.
        """
        self._forget_ended(scheduler)
        running = scheduler.running
        salted = {
            seq.seq_id
            for group in running
            if group.cache_salt is not None
            for seq in group.unfinished()
        }
        groups = {seq.seq_id: group for group in running for seq in group.unfinished()}
        asked = [
            Asked(
                seq.seq_id,
                seq.token_ids,
                seq.prompt_len,
                most,
                seq.seq_id not in salted,
                self._held(scheduler, seq, groups[seq.seq_id]),
            )
            for seq, most in self._wanting(list(_decodes(running)))
        ]
        self._asked = {one.seq_id for one in asked}
        if not asked:
            return {}
        try:
            proposed = self._drafter.propose(asked)
        except Exception:  # the user's code
            logger.exception("the drafter failed: the step has no guesses")
            return {}
        found = {
            one.seq_id: self._valid(guesses[: one.most])
            for one, guesses in zip(asked, proposed, strict=True)
            if guesses is not None
        }
        self._asked = set(found)
        return found

    def _held(self, scheduler: Scheduler, seq: TokenSequence, group: SequenceGroup) -> Held | None:
        """None of a request that was not opened."""
        setup = self._setups.get(group.number)
        if setup is None:
            return None
        blocks = scheduler.block_manager
        table = blocks.tables[seq.seq_id]  # its computed tokens are there
        end = table.ids[seq.num_computed_tokens // blocks.block_size :]
        own_end = all(blocks.ref_count(block) == 1 for block in end)
        room = group.stop.max_len - len(seq.token_ids) - 1
        row = table.row[: len(table.ids)]
        return Held(row, own_end, setup, seq.index, room, group.cache_salt)

    def waits(self, plan: SchedulerOutput) -> bool:
        """Whether the step after this one should have guesses, so that it is not planned ahead."""
        follow = [
            (item.seq, item.group.max_drafts)
            for item in plan.scheduled
            if item.num_samples and item.group.max_drafts
        ]
        return bool(self._wanting(follow))

    def learn(self, scheduled: Iterable[ScheduledSequence], accepted: dict[int, int]) -> None:
        """Takes note of a step.

        Args:
            accepted: Right guesses of each sequence that had any, by seq_id.
        """
        for item in scheduled:
            seq_id = item.seq.seq_id
            pace = self._paces.get(seq_id)
            if pace is None or not item.num_samples:
                continue
            if seq_id in self._asked:
                pace.learn(len(item.drafts), accepted.get(seq_id, 0))
            else:
                pace.pass_by()
        self._asked = set()

    def _wanting(self, decodes: list[tuple[TokenSequence, int]]) -> list[tuple[TokenSequence, int]]:
        """Those that do not rest, and how many guesses each may have."""
        each = MAX_DRAFT_TOKENS // len(decodes) if decodes else 0
        if not each:
            return []
        counts = [(seq, self._pace(seq).length(min(most, each))) for seq, most in decodes]
        return [(seq, count) for seq, count in counts if count]

    def _pace(self, seq: TokenSequence) -> Pace:
        pace = self._paces.get(seq.seq_id)
        if pace is None:
            pace = self._paces[seq.seq_id] = Pace(
                adaptive=self._adaptive, draft_cost=self._draft_cost
            )
        return pace

    def _valid(self, guesses: Sequence[int]) -> list[int]:
        valid = []
        for token in guesses:
            if not 0 <= token < self._vocab_size:
                break
            valid.append(token)
        return valid

    def _forget_ended(self, scheduler: Scheduler) -> None:
        ended = self._paces.keys() - scheduler.seq_ids
        if ended:
            for seq_id in ended:
                del self._paces[seq_id]
            self._drafter.forget(ended)


def _decodes(running: Sequence[SequenceGroup]) -> Iterator[tuple[TokenSequence, int]]:
    """Sequences that only lack their last token in the cache, and the most guesses of each."""
    for group in running:
        if group.max_drafts:
            for seq in group.unfinished():
                if seq.output_len and seq.num_tokens - seq.num_computed_tokens == 1:
                    yield seq, group.max_drafts
