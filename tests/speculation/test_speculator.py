"""Who is asked for guesses, and which of them a step gets. The scheduler here only has queues."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine import SamplingParams
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.speculation.drafter import DraftRequest
from jax_engine.speculation.predicted_text import PredictedText
from jax_engine.speculation.speculator import MAX_DRAFT_TOKENS, Speculator

VOCABULARY = 10


class Drafter:
    """Guesses by a function, and notes whom it knows."""

    def __init__(
        self,
        guess: Callable[[DraftRequest], list[int]] = lambda one: [1, 2, 3],
        promised: bool = True,
    ) -> None:
        self.guess, self.promised = guess, promised
        self.looked_at: list[DraftRequest] = []
        self.known: set[int] = set()
        self.asked: list[tuple[int, int]] = []

    def propose(self, asked: Sequence[DraftRequest]) -> list[list[int]]:
        self.known |= {one.seq_id for one in asked}
        self.asked = [(one.seq_id, one.most) for one in asked]
        return [self.guess(one) for one in asked]

    def promises(self, one: DraftRequest) -> bool:
        self.looked_at.append(one)
        return self.promised

    def forget(self, seq_ids: set[int]) -> None:
        self.known -= seq_ids


def group(seq_id: int, *, max_drafts: int = 5, output: int = 1, computed: int = 3) -> SequenceGroup:
    """A request that has a prompt of 3 tokens; by default its last token is not computed yet."""
    made = SequenceGroup(str(seq_id), [4, 5, 6], SamplingParams(), max_drafts=max_drafts)
    (seq,) = made.seqs
    seq.seq_id, seq.num_computed_tokens = seq_id, computed
    seq.token_ids += [7] * output
    return made


def scheduler(*running: SequenceGroup) -> Any:
    ids = {seq.seq_id for one in running for seq in one.unfinished()}
    return SimpleNamespace(running=list(running), seq_ids=ids)


def speculator(drafter: Any, *, adaptive: bool = False, draft_cost: float = 0.0) -> Speculator:
    return Speculator(drafter, VOCABULARY, adaptive=adaptive, draft_cost=draft_cost)


def plan(*groups: SequenceGroup, drafts: int = 0, num_samples: int = 1) -> SchedulerOutput:
    rows = [ScheduledSequence(one.seqs[0], one, 3, 1, num_samples, (1,) * drafts) for one in groups]
    return SchedulerOutput(rows)


def test_those_are_asked_that_lack_their_last_token_alone() -> None:
    drafter = Drafter()
    running = scheduler(
        group(1),
        group(2, max_drafts=0),  # a beam search, or a request that wants none
        group(3, output=0, computed=0),  # its prompt comes first
        group(4, output=0, computed=2),  # the end of the prompt
        group(5, output=2),  # preempted, and computed again
        group(6, output=2, computed=4, max_drafts=2),
    )
    ended = group(7)
    ended.seqs[0].finish_reason = "stop"
    running.running.append(ended)
    assert speculator(drafter).propose(running) == {1: [1, 2, 3], 6: [1, 2]}
    assert drafter.asked == [(1, 5), (6, 2)]


def test_nobody_to_ask() -> None:
    drafter = Drafter()
    assert speculator(drafter).propose(scheduler()) == {}
    assert speculator(drafter).propose(scheduler(group(1, max_drafts=0))) == {}
    assert drafter.asked == []


@pytest.mark.parametrize("count, each", [(1, 5), (6, 5), (7, 4), (16, 2), (32, 1), (33, 0)])
def test_all_share_the_guesses_of_a_step(count: int, each: int) -> None:
    """With more sequences than that, none is asked, and all are still planned ahead."""
    assert MAX_DRAFT_TOKENS == 32
    drafter = Drafter()
    groups = [group(i) for i in range(count)]
    one = speculator(drafter)
    found = one.propose(scheduler(*groups))
    assert found == {i: [1, 2, 3][:each] for i in range(count) if each}
    assert drafter.asked == [(i, each) for i in range(count) if each]
    assert one.waits(plan(*groups)) is bool(each)


@pytest.mark.parametrize(
    "guesses, kept",
    [
        ([], []),
        ([0, 9], [0, 9]),
        ([3, 10, 4], [3]),
        ([3, -1, 4], [3]),
        ([10], []),
        ([-1, -1], []),
        ([2**70], []),
        ([1] * 9, [1] * 5),
    ],
)
def test_guesses_end_at_what_is_no_token(guesses: list[int], kept: list[int]) -> None:
    drafter = Drafter(lambda one: guesses)
    assert speculator(drafter).propose(scheduler(group(1))) == {1: kept}


def test_a_drafter_that_fails_guesses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(one: DraftRequest) -> list[int]:
        raise ZeroDivisionError("in the user's code")

    drafter = Drafter(fail)
    one = speculator(drafter)
    assert one.propose(scheduler(group(1))) == {}
    assert "the drafter failed: the step has no guesses" in caplog.text
    assert "in the user's code" in caplog.text
    drafter.guess = lambda one: [4]
    assert one.propose(scheduler(group(1))) == {1: [4]}


def test_a_drafter_that_fails_rests_like_one_without_guesses() -> None:
    def fail(one: DraftRequest) -> list[int]:
        raise ZeroDivisionError

    one, same = speculator(Drafter(fail), adaptive=True), group(1)
    one.propose(scheduler(same))
    one.learn(plan(same).scheduled, {})
    assert not one.waits(plan(same))


def test_ended_sequences_are_forgotten() -> None:
    """1,000 requests, three at a time: nothing is kept of those that are no more."""
    drafter = Drafter()
    one = speculator(drafter, adaptive=True)
    for i in range(1000):
        running = [group(i + k) for k in range(3)]
        one.propose(scheduler(*running))
        one.learn(plan(*running, drafts=2).scheduled, {i: 2})
        one.waits(plan(*running))
        assert drafter.known <= {i, i + 1, i + 2}
        assert len(one._paces) == 3
    one.propose(scheduler())
    assert not drafter.known and not one._paces


def test_one_that_is_swapped_out_is_not_forgotten() -> None:
    """It is in no list of running ones, and comes back."""
    drafter = Drafter()
    one = speculator(drafter)
    one.propose(scheduler(group(1), group(2)))
    away = scheduler(group(2))
    away.seq_ids.add(1)
    one.propose(away)
    assert drafter.known == {1, 2}


def test_a_step_waits_for_those_that_want_guesses() -> None:
    one = speculator(Drafter())
    assert one.waits(plan(group(1)))
    assert one.waits(plan(group(2, max_drafts=0), group(1)))
    assert not one.waits(plan(group(2, max_drafts=0)))
    assert not one.waits(plan(group(3), num_samples=0))  # a part of a prompt
    assert not one.waits(plan())


def test_no_step_waits_for_those_that_rest() -> None:
    """No guess for sequence 1: a rest of a step. Those of 2 were right."""
    drafter = Drafter(lambda one: [1, 2] if one.seq_id == 2 else [])
    one = speculator(drafter, adaptive=True)
    resting, other = group(1), group(2)
    both = scheduler(resting, other)
    one.propose(both)
    rows = [*plan(resting).scheduled, *plan(other, drafts=2).scheduled]
    one.learn(rows, {2: 2})
    assert one.waits(plan(resting, other)) and not one.waits(plan(resting))
    one.propose(both)
    assert [seq_id for seq_id, _ in drafter.asked] == [2]
    one.learn(rows, {2: 2})
    assert one.waits(plan(resting))  # its rest is over
    one.propose(both)
    assert [seq_id for seq_id, _ in drafter.asked] == [1, 2]


@pytest.mark.parametrize("promised", [True, False])
def test_a_step_is_planned_ahead_where_no_guess_is_in_sight(promised: bool) -> None:
    drafter = Drafter(promised=promised)
    salted = group(2)
    salted.cache_salt = "a"
    assert speculator(drafter, adaptive=True).waits(plan(group(1), salted)) is promised
    seen = [(one.seq_id, one.token_ids, one.prompt_len, one.shares) for one in drafter.looked_at]
    assert seen == [(1, [4, 5, 6, 7], 3, True), (2, [4, 5, 6, 7], 3, False)]
    assert speculator(drafter, adaptive=False).waits(plan(group(1)))


def test_who_was_not_in_sight_of_guesses_is_asked_at_once_when_it_is() -> None:
    """No rest is taken meanwhile: a text that begins to copy is noticed in the step it does."""
    drafter = Drafter(promised=False)
    one, asker = group(1), speculator(drafter, adaptive=True)
    for _ in range(40):
        assert not asker.waits(plan(one))
        asker.learn(plan(one).scheduled, {})
    drafter.promised = True
    assert asker.waits(plan(one))


def predicting(seq_id: int, text: list[int]) -> SequenceGroup:
    """A request whose output so far is [7], and is expected to be this text."""
    made = group(seq_id)
    made.prediction = PredictedText.of(text)
    return made


def test_a_prediction_guesses_in_the_drafters_place() -> None:
    """Where the answer is in it; of another request, and where it is not, the drafter does."""
    drafter = Drafter()
    running = scheduler(predicting(1, [7, 8, 9]), predicting(2, [8, 9]), group(3))
    assert speculator(drafter).propose(running) == {1: [8, 9], 2: [1, 2, 3], 3: [1, 2, 3]}
    assert drafter.asked == [(2, 5), (3, 5)]
    drafter.asked = []
    assert speculator(drafter).propose(scheduler(predicting(4, [7, 8]))) == {4: [8]}
    assert drafter.asked == []


def test_a_drafter_that_fails_takes_no_guess_of_a_prediction() -> None:
    def fail(one: DraftRequest) -> list[int]:
        raise ZeroDivisionError

    running = scheduler(predicting(1, [7, 8, 9]), group(2))
    assert speculator(Drafter(fail)).propose(running) == {1: [8, 9]}


def test_without_a_guess_a_request_with_a_prediction_does_not_rest() -> None:
    """Its answer may be back in it with any token. Wrong guesses of it count as any."""
    one = speculator(Drafter(lambda asked: []), adaptive=True)
    lost, plain = predicting(1, [8, 9]), group(2)
    one.propose(scheduler(lost, plain))
    one.learn(plan(lost, plain).scheduled, {})
    assert one.waits(plan(lost)) and not one.waits(plan(plain))
    wrong = predicting(3, [7, 8, 9])
    tried = 0
    while one.waits(plan(wrong)):
        assert one.propose(scheduler(wrong))[3]
        one.learn(plan(wrong, drafts=2).scheduled, {})
        tried += 1
    assert tried == 6


def seen(asker: Speculator, rows: list[SequenceGroup], drafts: int, seconds: float) -> None:
    """Steps of these sequences took so long, with so many drafts for each."""
    for _ in range(2):
        asker.learn(plan(*rows, drafts=drafts).scheduled, {}, seconds)


def test_a_full_batch_has_no_guesses_where_they_make_its_steps_twice_as_long() -> None:
    """A trial is the exception: a little time is saved up for it at first."""
    groups = [group(i) for i in range(8)]
    asker = speculator(Drafter(), adaptive=True)
    seen(asker, groups, 0, 1.0)
    seen(asker, groups, 1, 2.0)
    assert asker.waits(plan(*groups)) and len(asker.propose(scheduler(*groups))) == 8
    asker.learn(plan(*groups, drafts=1).scheduled, dict.fromkeys(range(4), 1), 2.0)
    assert not asker.waits(plan(*groups))
    assert asker.propose(scheduler(*groups)) == {}
    asker.learn(plan(*groups).scheduled, {}, 1.0)
    # They did not rest for that: alone it is another thing
    assert asker.propose(scheduler(groups[0])) == {0: [1, 2, 3]}


def test_a_draft_model_is_not_asked_for_guesses_that_would_be_dropped() -> None:
    """It has run when its guesses are there. Steps with guesses take three times as long here."""
    drafter = Drafter()
    free, groups = speculator(drafter, adaptive=True), [group(1)]
    asker = speculator(drafter, adaptive=True, draft_cost=0.1)
    for one in (asker, free):
        seen(one, groups, 0, 1.0)
        for drafts in (1, 3, 5):
            seen(one, groups, drafts, 3.0)
    for _ in range(40):
        assert asker.propose(scheduler(*groups)) == {} and not drafter.asked
        asker.learn(plan(*groups).scheduled, {}, 1.0)
    assert free.propose(scheduler(*groups)) == {} and drafter.asked == [(1, 5)]


def test_what_a_draft_model_drew_is_verified_and_learned_from() -> None:
    """Predicted guesses beside it cost nothing, and are verified where that is worth it."""
    drafter = Drafter(lambda one: [1] * one.most)
    asker = speculator(drafter, adaptive=True, draft_cost=0.2)
    drawn, predicted = group(1), predicting(2, [7, 8, 9])
    found = asker.propose(scheduler(drawn, predicted))
    assert drafter.asked == [(1, 1)] and found == {1: [1], 2: [8]}
    asker.learn(plan(drawn, drafts=1).scheduled, {1: 1})
    assert len(asker.propose(scheduler(drawn, predicted))[1]) > 1
    # Its guesses cost more than they give: it rests, though what it drew was verified
    slow = speculator(drafter, adaptive=True, draft_cost=1.5)
    assert slow.propose(scheduler(group(3))) == {}


def test_a_full_batch_has_guesses_where_they_cost_little() -> None:
    """The likeliest ones: sequence 0 was right before, and the others never."""
    groups = [group(i) for i in range(8)]
    asker = speculator(Drafter(), adaptive=True)
    seen(asker, groups, 0, 1.0)
    seen(asker, groups, 1, 1.05)
    for _ in range(3):
        asker.propose(scheduler(*groups))
        asker.learn(plan(*groups, drafts=2).scheduled, {0: 2}, 9.0)  # 24 tokens cost a lot
    assert asker.waits(plan(*groups))
    found = asker.propose(scheduler(*groups))
    assert found[0] == [1, 2, 3] and sum(map(len, found.values())) == 8
