"""Asks a drafter before a step is planned, and learns from what the step accepted."""

import logging
from collections.abc import Iterable, Iterator, Sequence

from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.sequence import Sequence as TokenSequence
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.speculation.drafter import Asked, Drafter
from jax_engine.speculation.pace import Pace

logger = logging.getLogger("jax_engine")
MAX_DRAFT_TOKENS = 32  # of all sequences in one step


class Speculator:
    """Guesses for the sequences of an engine.

    Args:
        vocab_size: Guesses are token ids below it.
        adaptive: Whether to guess less where few guesses were right.
    """

    def __init__(self, drafter: Drafter, vocab_size: int, *, adaptive: bool = True) -> None:
        self._drafter, self._vocab_size, self._adaptive = drafter, vocab_size, adaptive
        self._paces: dict[int, Pace] = {}
        self._asked: set[int] = set()

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
        wanting = self._wanting(list(_decodes(running)))
        self._asked = {seq.seq_id for seq, _ in wanting}
        drafts = _predicted(running, wanting)
        asked = [
            Asked(seq.seq_id, seq.token_ids, seq.prompt_len, most, seq.seq_id not in salted)
            for seq, most in wanting
            if seq.seq_id not in drafts
        ]
        return drafts | self._ask(asked) if asked else drafts

    def _ask(self, asked: list[Asked]) -> dict[int, list[int]]:
        """What the drafter guesses; nothing if it fails."""
        try:
            proposed = self._drafter.propose(asked)
        except Exception:  # the user's code
            logger.exception("the drafter failed: the step has no guesses")
            return {}
        return {
            one.seq_id: self._valid(guesses[: one.most])
            for one, guesses in zip(asked, proposed, strict=True)
        }

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
            prediction = item.group.prediction
            if prediction is not None:
                prediction.learn(item.seq, item.drafts, item.start + 1)
            # Without a guess it does not rest: it may be back in what is predicted any time.
            if seq_id in self._asked and (item.drafts or prediction is None):
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
            pace = self._paces[seq.seq_id] = Pace(adaptive=self._adaptive)
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


def _predicted(
    running: Sequence[SequenceGroup], wanting: Sequence[tuple[TokenSequence, int]]
) -> dict[int, list[int]]:
    """Guesses for sequences that are where their requests predict them to be."""
    predictions = {
        seq.seq_id: group.prediction
        for group in running
        if group.prediction is not None
        for seq in group.unfinished()
    }
    found = {
        seq.seq_id: list(predictions[seq.seq_id].guesses(seq, most))
        for seq, most in wanting
        if seq.seq_id in predictions
    }
    return {seq_id: guesses for seq_id, guesses in found.items() if guesses}


def _decodes(running: Sequence[SequenceGroup]) -> Iterator[tuple[TokenSequence, int]]:
    """Sequences that only lack their last token in the cache, and the most guesses of each."""
    for group in running:
        if group.max_drafts:
            for seq in group.unfinished():
                if seq.output_len and seq.num_tokens - seq.num_computed_tokens == 1:
                    yield seq, group.max_drafts
