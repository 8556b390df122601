"""How many guesses a step is given, by the times of steps."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine.speculation.draft_length import (
    ANY,
    EACH,
    GROWTH,
    KEPT,
    MOST_SAVED,
    STALE,
    TRIALS,
    StepCosts,
    padded,
)

SIZES = (1, 2, 4, 8, 16, 32, 64)
chances = st.lists(st.floats(0, 1), max_size=12).map(lambda some: sorted(some, reverse=True))


def told(plain: dict[int, float], longer: dict[int, float]) -> StepCosts:
    """Times of steps without and with drafts, by their size; each was seen twice."""
    costs = StepCosts()
    for _ in range(2):
        for size, seconds in plain.items():
            costs.learn(size, 0, seconds)
        for size, seconds in longer.items():
            costs.learn(size, 1, seconds)
    return costs


@pytest.mark.parametrize("num_tokens, size", [(1, 1), (2, 2), (3, 4), (8, 8), (9, 16), (33, 64)])
def test_steps_are_padded(num_tokens: int, size: int) -> None:
    assert padded(num_tokens) == size


def test_the_shortest_of_the_last_times_counts() -> None:
    """The first time of each kind of step is left out: it may include compilation."""
    costs = StepCosts()
    for seconds in (0.1, 2.0, 3.0):
        costs.learn(1, 0, seconds)
    costs.learn(8, 7, 9.0)
    assert costs.ratio(1, 7) == 1 + ANY + EACH * 7  # not known yet
    costs.learn(8, 7, 4.0)
    costs.learn(7, 3, 5.0)  # padded to the same size
    assert costs.ratio(1, 7) == costs.ratio(1, 4) == 2.0
    assert costs.ratio(1, 2) == 1 + ANY + EACH * 2  # no step of up to 4 was seen
    for _ in range(KEPT):
        costs.learn(8, 7, 6.0)
    assert costs.ratio(1, 7) == 3.0


def test_a_time_is_forgotten_when_it_is_old() -> None:
    costs = told({1: 1.0}, {2: 50.0})
    for _ in range(STALE - 1):
        costs.learn(1, 0, 1.0)
    assert costs.ratio(1, 1) == 50
    for _ in range(2):
        costs.learn(1, 0, 1.0)
    assert costs.ratio(1, 1) == 1 + ANY + EACH
    costs.learn(2, 1, 0.1)  # again the first of its kind
    assert costs.ratio(1, 1) == 1 + ANY + EACH


def test_a_larger_step_is_taken_to_cost_little_more_until_it_is_seen() -> None:
    """So it is tried; and no more than by the cost of each guess."""
    costs = told({1: 1.0}, {2: 1.0})
    assert costs.ratio(1, 3) == GROWTH
    assert costs.ratio(1, 7) == GROWTH**2
    assert told({1: 1.0}, {2: 3.0}).ratio(1, 3) == 1 + ANY + EACH * 3
    assert told({8: 1.0}, {8: 1.0}).ratio(8, 8) == GROWTH
    assert told({8: 1.0}, {}).ratio(8, 8) == 1 + ANY + EACH * 8


@pytest.mark.parametrize("plain, longer", [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_a_clock_that_stands_still_tells_nothing(plain: float, longer: float) -> None:
    costs = told({1: plain}, {2: longer})
    assert costs.ratio(1, 1) == 1 + ANY + EACH
    assert costs.best_count(1, [0.9]) == 1


@given(
    rows=st.integers(1, 20),
    likely=chances,
    times=st.lists(st.floats(0.5, 4), min_size=len(SIZES), max_size=len(SIZES)),
)
@example(rows=8, likely=[0.9] * 8, times=[1.0] * 7)
@example(rows=1, likely=[0.0], times=[1.0] * 7)
def test_no_other_number_of_guesses_gives_more_tokens_a_second(
    rows: int, likely: list[float], times: list[float]
) -> None:
    """With drafts a step of each size takes its time, and without them half of it."""
    longer = dict(zip(SIZES, times, strict=True))
    costs = told({size: seconds / 2 for size, seconds in longer.items()}, longer)

    def rate(count: int) -> float:
        seconds = longer[padded(rows + count)] if count else longer[padded(rows)] / 2
        return (rows + sum(likely[:count])) / seconds

    found = costs.best_count(rows, likely)
    assert 0 <= found <= len(likely)
    assert rate(found) == pytest.approx(max(map(rate, range(len(likely) + 1))))


@given(rows=st.integers(1, 9), steps=st.integers(1, 400), cost=st.floats(1.0, 3.0))
def test_trials_lose_little(rows: int, steps: int, cost: float) -> None:
    """Guesses that are never right: what is lost on them is at most what was saved up for it."""
    costs = told({size: 1.0 for size in SIZES}, {size: cost for size in SIZES})
    lost = 0.0
    for _ in range(steps):
        count = costs.count(rows, [0.01, 0.01], spends=True)
        lost += cost - 1 if count else 0.0
        costs.learn(rows + count, count, cost if count else 1.0)
    saved = MOST_SAVED + TRIALS * (steps + 4 * len(SIZES))
    assert lost <= saved + 0.02 * steps  # the guesses are expected to be right now and then


def test_a_question_spends_nothing() -> None:
    costs = told({1: 1.0}, {2: 1.4})
    asked = [costs.count(1, [0.1], spends=False) for _ in range(5)]
    spent = [costs.count(1, [0.1], spends=True) for _ in range(5)]
    assert asked == [1] * 5 and spent == [1, 0, 0, 0, 0]
    assert costs.count(1, [], spends=True) == 0


def test_a_trial_fills_the_step() -> None:
    """Rows for guesses that are padded anyway cost nothing."""
    costs = told({8: 1.0}, {8: 1.0, 16: 1.2})
    assert costs.count(6, [0.0] * 9, spends=True) == 2
    assert costs.count(8, [0.0] * 20, spends=True) == 8
    assert costs.count(8, [0.0] * 3, spends=True) == 3


def test_what_a_draft_model_costs_counts_before_a_step_was_seen() -> None:
    """Once for each guess in a row: it draws those of all sequences together."""
    costs = StepCosts(draft_cost=0.5)
    assert costs.ratio(1, 3) == pytest.approx(1 + ANY + 3 * EACH + 1.5)
    assert costs.ratio(4, 4) == pytest.approx(1 + ANY + 4 * EACH + 0.5)
    assert costs.ratio(4, 5) == pytest.approx(1 + ANY + 5 * EACH + 1.0)
