"""How many guesses are asked for: what costs least by the share that was right so far."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.speculation.draft_length import ANY, EACH, LONGEST_REST, DraftLength, best_length


def speed(share: float, count: int) -> float:
    """Tokens of a step by what it costs, in plain steps."""
    tokens = sum(share**i for i in range(count + 1))
    return tokens / (1 + (ANY + EACH * count if count else 0))


@given(share=st.floats(0, 1), most=st.integers(0, 63))
def test_no_other_length_is_faster(share: float, most: int) -> None:
    length = best_length(share, most)
    assert 0 <= length <= most
    best = max(speed(share, count) for count in range(most + 1))
    assert speed(share, length) == pytest.approx(best)


def test_lengths_grow_with_the_share() -> None:
    lengths = [best_length(share / 100, 63) for share in range(101)]
    assert lengths == sorted(lengths)
    assert lengths[:11] == [0] * 11 and lengths[100] == 63
    assert [best_length(share, 63) for share in (0.2, 0.5, 0.9)] == [1, 3, 11]


def attempts(pace: DraftLength, steps: int, num_drafts: int, num_right: int) -> list[int]:
    """The steps in which it asks for guesses; each attempt ends alike."""
    found = []
    for step in range(steps):
        if pace.length(5):
            found.append(step)
            pace.learn(num_drafts, num_right)
        else:
            pace.pass_by()
    return found


@pytest.mark.parametrize("num_drafts", [0, 5])
def test_rests_double_while_nothing_is_right(num_drafts: int) -> None:
    """Nothing was guessed, or all was wrong. The first wrong guesses may be an accident."""
    found = attempts(DraftLength(adaptive=True), 100, num_drafts, 0)
    rests = [after - before - 1 for before, after in pairwise(found)]
    rests = [rest for rest in rests if rest]
    assert rests[:7] == [1, 2, 4, 8, 16, 16, 16] and max(rests) == LONGEST_REST


def test_a_right_guess_ends_the_long_rests() -> None:
    pace = DraftLength(adaptive=True)
    attempts(pace, 40, 0, 0)
    while not pace.length(5):
        pace.pass_by()
    pace.learn(5, 5)
    assert pace.length(5)  # it goes on at once
    pace.learn(0, 0)
    assert not pace.length(5)
    pace.pass_by()
    assert pace.length(5)  # and the next rest is a short one


def test_it_asks_for_more_where_more_is_right() -> None:
    lengths = []
    pace = DraftLength(adaptive=True, draft_cost=1e-9)
    for _ in range(20):
        lengths.append(pace.length(31))
        pace.learn(lengths[-1], lengths[-1])
    assert lengths == sorted(lengths) and (lengths[0], lengths[-1]) == (3, 31)


def test_it_asks_for_one_after_a_rest() -> None:
    pace = DraftLength(adaptive=True, draft_cost=1e-9)
    for _ in range(10):
        pace.learn(5, 0)
    while not (length := pace.length(5)):
        pace.pass_by()
    assert length == 1


@given(
    outcomes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=50),
    most=st.integers(1, 63),
)
def test_without_adaption_it_always_asks_for_all(
    outcomes: list[tuple[int, int]], most: int
) -> None:
    pace = DraftLength(adaptive=False)
    for num_drafts, num_right in outcomes:
        pace.learn(num_drafts, min(num_drafts, num_right))
        assert pace.length(most) == most
        pace.pass_by()


def test_guesses_behind_the_first_wrong_one_tell_nothing() -> None:
    """0 right of 5 is one wrong guess, 1 of 5 are two that were judged."""
    once, then = (
        DraftLength(adaptive=True, draft_cost=1e-9),
        DraftLength(adaptive=True, draft_cost=1e-9),
    )
    once.learn(5, 0)
    then.learn(5, 1)
    assert [one.length(5) for one in (once, then)] == [2, 3]


@given(share=st.floats(0, 1), most=st.integers(0, 20), cost=st.floats(0, 2))
def test_guesses_that_cost_more_are_fewer(share: float, most: int, cost: float) -> None:
    length = best_length(share, most, EACH + cost)
    assert length <= best_length(share, most)
    rates = [
        sum(share**i for i in range(k + 1)) / (1 + (ANY + (EACH + cost) * k if k else 0))
        for k in range(most + 1)
    ]
    assert rates[length] == pytest.approx(max(rates))


def test_a_draft_as_slow_as_its_target_is_asked_seldom() -> None:
    """It is always right. A draft of a tenth of the cost is asked for all there is."""
    slow, fast = (DraftLength(adaptive=True, draft_cost=cost) for cost in (1.0, 0.1))
    assert len(attempts(slow, 100, 1, 1)) == 50  # a rest of a step, after each
    assert len(attempts(fast, 100, 5, 5)) == 100 and fast.length(31) == 31


def test_guesses_that_are_looked_up_are_all_wanted() -> None:
    """The cost of a step decides which of them it verifies."""
    pace = DraftLength(adaptive=True)
    assert pace.length(5) == 5
    pace.learn(5, 1)
    assert pace.length(31) == 31
    pace.learn(0, 0)
    assert pace.length(31) == 0
