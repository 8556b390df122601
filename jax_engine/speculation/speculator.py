"""Asks a drafter before a step is planned, and learns from what the step accepted."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from jax_engine.core.scheduler import Scheduler
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.sequence import Sequence as TokenSequence
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.speculation.draft_length import DraftLength, StepCosts
from jax_engine.speculation.draft_model import DraftModelDrafter, LookaheadDraft
from jax_engine.speculation.drafter import CacheView, Drafter, DraftRequest, PendingDraft
from jax_engine.step import RequestSetup, Ticket, Unread

logger = logging.getLogger("jax_engine")
MAX_DRAFT_TOKENS = 32  # of all sequences in one step
UNKNOWN = -1  # a guess that nobody can read: it equals no token


class Speculator:
    """Guesses for the sequences of an engine.

    Args:
        vocab_size: Guesses are token ids below it.
        adaptive: Whether to guess less where few guesses were right.
        draft_cost: As in `DraftLength`.
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
        self._paces: dict[int, DraftLength] = {}
        self._asked: set[int] = set()
        self._costs = StepCosts(draft_cost)
        self._following = (
            drafter if isinstance(drafter, DraftModelDrafter) and drafter.follows else None
        )
        self._behind: LookaheadDraft | None = None  # guesses for the step that is planned next
        self._verified: LookaheadDraft | None = None  # those of the step in flight

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
        groups = {seq.seq_id: group for group in running for seq in group.unfinished()}
        wanting = self._wanting(list(_decodes(running)))
        self._asked = {seq.seq_id for seq, _ in wanting}
        self._verified, self._behind = self._behind, None
        predicted = _predicted(groups, wanting)
        if self._verified is not None:
            drawn = self._take(self._verified, scheduler, groups, wanting)
            self._asked &= drawn.keys() | predicted.keys()
        else:
            left = [(seq, most) for seq, most in wanting if seq.seq_id not in predicted]
            drawn = self._draw(scheduler, groups, left)
        if not self._adaptive:
            return drawn | predicted
        if self._draft_cost:  # those that are drawn are paid already
            return drawn | self._worthwhile(predicted, len(groups))
        return self._worthwhile(drawn | predicted, len(groups))

    def follow(self, scheduler: Scheduler, plan: SchedulerOutput, ticket: Ticket) -> None:
        """Has a draft model go on behind a step that the host has not read, where it can."""
        if self._following is None:
            return
        decodes = [(item.seq, item.group.max_drafts) for item in plan.scheduled if _drafts(item)]
        wanting = self._worth_drawing(self._wanting(decodes), len(plan.scheduled))
        if not wanting:
            return
        groups = {item.seq.seq_id: item.group for item in plan.scheduled}
        places = {item.seq.seq_id: place for place, item in enumerate(plan.scheduled)}
        firsts = [*accumulate([item.num_draws for item in plan.scheduled], initial=0)]
        verifying = []
        for seq, most in wanting:
            place = places[seq.seq_id]
            asked = self._asked_for(scheduler, seq, groups[seq.seq_id], most)
            count = len(plan.scheduled[place].drafts)
            verifying.append(PendingDraft(asked, place, firsts[place], count))
        if any(groups[seq.seq_id].constraints for seq, _ in wanting):
            return  # which tokens are allowed depends on guesses that nobody has read
        try:
            self._behind = self._following.follow(verifying, ticket)
        except Exception:
            logger.exception("the drafter failed: the next step has no guesses")

    def forget_steps(self) -> None:
        """A step failed: nothing follows from those in flight."""
        self._behind = self._verified = None

    def unread(self, plan: SchedulerOutput) -> Unread | None:
        """What a planned step takes from the draft model's steps; None if it takes nothing."""
        if self._verified is None or not _any_unread(plan):
            return None
        return Unread(self._verified.drawing.tickets)

    def read(self, plan: SchedulerOutput) -> None:
        """Puts guesses that the host has not read into the plan of the step that verifies them."""
        behind, self._verified = self._verified, None
        if behind is None or not _any_unread(plan):
            return
        assert self._following is not None
        found: dict[int, list[int]] = {}
        try:
            found = self._following.read(behind)
        except Exception:
            logger.exception("the drafter failed: no guess of the step counts")
            self._behind = None  # what was launched behind these has lost its cache, too
        for place, item in enumerate(plan.scheduled):
            if item.drafts and item.drafts[0] < 0:
                count = len(item.drafts)
                guesses = found.get(item.seq.seq_id, [UNKNOWN] * count)[:count]
                known = tuple([token if token < self._vocab_size else 0 for token in guesses])
                plan.scheduled[place] = item._replace(drafts=known)

    def _take(
        self,
        behind: LookaheadDraft,
        scheduler: Scheduler,
        groups: Mapping[int, SequenceGroup],
        wanting: Sequence[tuple[TokenSequence, int]],
    ) -> dict[int, list[int]]:
        """Guesses that were launched before the step that they follow was read."""
        assert self._following is not None
        going = [
            self._asked_for(scheduler, seq, group, 0)
            for group in scheduler.running
            for seq in group.unfinished()
            if seq.seq_id in behind.wanted
        ]
        self._following.settle(behind, going)
        unread = behind.unread()
        return {
            seq.seq_id: unread[seq.seq_id][:most] for seq, most in wanting if seq.seq_id in unread
        }

    def _asked_for(
        self, scheduler: Scheduler, seq: TokenSequence, group: SequenceGroup, most: int
    ) -> DraftRequest:
        return _asked(seq, group, most, self._held(scheduler, seq, group))

    def _draw(
        self,
        scheduler: Scheduler,
        groups: Mapping[int, SequenceGroup],
        wanting: Sequence[tuple[TokenSequence, int]],
    ) -> dict[int, list[int]]:
        """What the drafter guesses for the sequences that are worth asking it for."""
        worth = self._worth_drawing(wanting, len(groups))
        asked = [self._asked_for(scheduler, seq, groups[seq.seq_id], most) for seq, most in worth]
        self._asked -= {seq.seq_id for seq, _ in wanting} - {one.seq_id for one in asked}
        return self._ask(asked) if asked else {}

    def _worth_drawing(
        self, wanting: Sequence[tuple[TokenSequence, int]], rows: int
    ) -> list[tuple[TokenSequence, int]]:
        """How many guesses are worth what a draft model takes to draw them.

        Those that are looked up cost nothing before they are verified (`_worthwhile`).
        """
        if not (self._adaptive and self._draft_cost):
            return list(wanting)
        kept = self._likeliest({seq.seq_id: most for seq, most in wanting}, rows)
        return [(seq, kept[seq.seq_id]) for seq, _ in wanting if kept[seq.seq_id]]

    def _ask(self, asked: list[DraftRequest]) -> dict[int, list[int]]:
        """What the drafter guesses; nothing if it fails."""
        try:
            proposed = self._drafter.propose(asked)
        except Exception:  # the user's code
            logger.exception("the drafter failed: the step has no guesses")
            return {}
        given = dict(zip([one.seq_id for one in asked], proposed, strict=True))
        self._asked -= {seq_id for seq_id, guesses in given.items() if guesses is None}
        return {
            one.seq_id: self._valid(guesses[: one.most])
            for one in asked
            if (guesses := given[one.seq_id]) is not None
        }

    def _worthwhile(self, drafts: dict[int, list[int]], rows: int) -> dict[int, list[int]]:
        """Those guesses that are worth a longer step: the most probable ones."""
        kept = self._likeliest({seq_id: len(guesses) for seq_id, guesses in drafts.items()}, rows)
        dropped = {seq_id for seq_id, guesses in drafts.items() if guesses and not kept[seq_id]}
        self._asked -= dropped  # they were not tried
        return {
            seq_id: guesses[: kept[seq_id]]
            for seq_id, guesses in drafts.items()
            if seq_id not in dropped
        }

    def _likeliest(self, counts: dict[int, int], rows: int) -> Counter[int]:
        """How many guesses of each sequence are worth a longer step: the most probable ones.

        Args:
            counts: How many there may be, by seq_id.
        """
        likeliest = self._chances(counts)
        count = self._costs.count(rows, [chance for chance, _ in likeliest], spends=True)
        return Counter(seq_id for _, seq_id in likeliest[:count])

    def _chances(self, counts: dict[int, int]) -> list[tuple[float, int]]:
        """How probable it is that guesses are right, with those before them; the best first.

        Args:
            counts: Guesses of each sequence, by seq_id.
        """
        chances = [
            (self._paces[seq_id].share ** (place + 1), seq_id)
            for seq_id, count in counts.items()
            for place in range(count)
        ]
        return sorted(chances, key=lambda one: -one[0])

    def _held(
        self, scheduler: Scheduler, seq: TokenSequence, group: SequenceGroup
    ) -> CacheView | None:
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
        return CacheView(row, own_end, setup, seq.index, room, group.own_salt)

    def waits(self, plan: SchedulerOutput) -> bool:
        """Whether the step after this one should have guesses, so that it is not planned ahead."""
        groups = {
            item.seq.seq_id: item.group
            for item in plan.scheduled
            if item.num_samples and item.group.max_drafts
        }
        follow = [item.seq for item in plan.scheduled if item.seq.seq_id in groups]
        wanting = self._wanting([(seq, groups[seq.seq_id].max_drafts) for seq in follow])
        if not self._adaptive:
            return bool(wanting)
        counts = {
            seq.seq_id: most
            for seq, most in wanting
            if self._in_sight(seq, most, groups[seq.seq_id])
        }
        chances = [chance for chance, _ in self._chances(counts)]
        rows = sum([item.num_samples for item in plan.scheduled])
        return self._costs.count(rows, chances, spends=False) > 0

    def _in_sight(self, seq: TokenSequence, most: int, group: SequenceGroup) -> bool:
        """Whether a sequence may have guesses when its next token is known."""
        if group.prediction is not None:
            return True
        return self._drafter.promises(_asked(seq, group, most))

    def learn(
        self,
        scheduled: Sequence[ScheduledSequence],
        accepted: dict[int, int],
        seconds: float | None = None,
    ) -> None:
        """Takes note of a step.

        Args:
            accepted: Right guesses of each sequence that had any, by seq_id.
            seconds: From the end of the step before it; None of a step with a prompt's tokens.
        """
        if seconds is not None:
            num_drafts = sum([len(item.drafts) for item in scheduled])
            self._costs.learn(len(scheduled) + num_drafts, num_drafts, seconds)
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

    def _pace(self, seq: TokenSequence) -> DraftLength:
        pace = self._paces.get(seq.seq_id)
        if pace is None:
            pace = self._paces[seq.seq_id] = DraftLength(
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


def _asked(
    seq: TokenSequence, group: SequenceGroup, most: int, held: CacheView | None = None
) -> DraftRequest:
    """What a drafter is asked for a sequence."""
    shares, adapter = group.own_salt is None, group.adapter
    digest = None if adapter is None else adapter.digest
    return DraftRequest(seq.seq_id, seq.token_ids, seq.prompt_len, most, shares, held, digest)


def _predicted(
    groups: Mapping[int, SequenceGroup], wanting: Sequence[tuple[TokenSequence, int]]
) -> dict[int, list[int]]:
    """Guesses for sequences that are where their requests predict them to be."""
    found = {}
    for seq, most in wanting:
        prediction = groups[seq.seq_id].prediction
        guesses = prediction.guesses(seq, most) if prediction is not None else ()
        if guesses:
            found[seq.seq_id] = list(guesses)
    return found


def _any_unread(plan: SchedulerOutput) -> bool:
    """Whether there are guesses that the host does not know."""
    return any([item.drafts and item.drafts[0] < 0 for item in plan.scheduled])


def _drafts(item: ScheduledSequence) -> bool:
    """Whether a row of a step feeds the last token of an output, and guesses behind it."""
    plain = item.num_samples == 1 and item.num_tokens == 1 + len(item.drafts)
    return bool(plain and item.seq.output_len and item.group.max_drafts)


def _decodes(running: Sequence[SequenceGroup]) -> Iterator[tuple[TokenSequence, int]]:
    """Sequences that only lack their last token in the cache, and the most guesses of each."""
    for group in running:
        if group.max_drafts:
            for seq in group.unfinished():
                if seq.output_len and seq.num_tokens - seq.num_computed_tokens == 1:
                    yield seq, group.max_drafts
