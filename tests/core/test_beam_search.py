"""§4.4, the selection of beam search by hand: who wins, what is kept, when it is done."""

from typing import Any

import pytest

from jax_engine.core.beam_search import BeamSearch, Choice, best_choices, num_candidates
from jax_engine.core.sequence import Sequence
from tests.core.build import make_params
from tests.support.beams import beam_params


def ended(output_len: int) -> Sequence:
    return Sequence(0, [0] * (3 + output_len), 3)


def choice(value: float) -> Choice:
    return Choice(value, 0, 0, 0.0, 1)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"ignore_eos": True}, 6),
        ({}, 6),
        ({"stop_token_ids": [2]}, 6),  # the end of sequence, once more
        ({"stop_token_ids": None}, 6),
        ({"stop_token_ids": [4]}, 9),
        ({"stop_token_ids": [4, 5], "best_of": 4}, 16),
        ({"ignore_eos": True, "stop_token_ids": [2, 4]}, 9),
    ],
)
def test_as_many_candidates_that_k_of_them_do_not_end(changes: Any, count: int) -> None:
    assert num_candidates(make_params(n=3, **changes), {2}) == count


def test_candidates_of_all_beams_are_ranked_by_their_sum() -> None:
    first = (-1.0, [(7, -0.5), (8, -2.0)])
    second = (-2.0, [(9, -0.25), (5, -0.75)])
    choices = best_choices([first, second], 3)
    assert [(one.beam, one.token, one.value) for one in choices] == [
        (0, 7, -1.5),
        (1, 9, -2.25),
        (1, 5, -2.75),
    ]
    assert [(one.logprob, one.rank) for one in choices] == [(-0.5, 1), (-0.25, 1), (-0.75, 2)]


def test_ties_go_to_the_better_beam_and_then_to_the_lower_token() -> None:
    beams = [(-1.0, [(6, -1.0), (9, -1.0)]), (-1.5, [(4, -0.5), (3, -0.5)])]
    choices = best_choices(beams, 4)
    assert [(one.beam, one.token) for one in choices] == [(0, 6), (0, 9), (1, 3), (1, 4)]


@pytest.mark.parametrize(
    ("penalty", "order"), [(0.0, [2, 4, 8]), (1.0, [4, 8, 2]), (2.0, [8, 4, 2]), (-1.0, [2, 4, 8])]
)
def test_hypotheses_are_ordered_by_value_over_length_to_the_penalty(
    penalty: float, order: list[int]
) -> None:
    search = BeamSearch(3, 4, penalty)
    for value, length in ((-4.0, 4), (-9.0, 8), (-3.0, 2)):
        search.add(value, ended(length))
    assert [one.seq.output_len for one in search.hypotheses] == order


def test_the_best_k_are_kept_and_at_ties_the_older() -> None:
    search = BeamSearch(2, 4)
    sequences = [ended(length) for length in (2, 1, 2, 1)]
    for value, seq in zip((-4.0, -2.0, -4.0, -1.0), sequences, strict=True):
        search.add(value, seq)
    assert [one.seq for one in search.hypotheses] == [sequences[3], sequences[0]]
    assert [one.score for one in search.hypotheses] == [-1.0, -2.0]


@pytest.mark.parametrize(
    ("early", "penalty", "best", "done"),
    [
        (False, 1.0, -6.1, True),  # -6.1 / 3 is below -2, the worst hypothesis
        (False, 1.0, -6.0, True),  # a draw does not go on
        (False, 1.0, -5.9, False),
        (True, 1.0, -5.9, True),
        ("never", 1.0, -19.9, False),  # over 10 tokens it may still reach -1.99
        ("never", 1.0, -20.0, True),
        ("never", 0.0, -2.1, True),  # without a reward for length, only the value counts
        ("never", -1.0, -1.0, True),  # length costs: the present one is the best hope
        ("never", -1.0, -0.6, False),
    ],
)
def test_done_when_nothing_better_is_to_be_expected(
    early: Any, penalty: float, best: float, done: bool
) -> None:
    search = BeamSearch(2, 4, penalty, early)
    for _ in range(2):
        search.add(-2.0, ended(1))
    assert search.done([choice(best), choice(-50.0)], 3, 10) is done


@pytest.mark.parametrize("early", [True, False, "never"])
def test_fewer_than_k_hypotheses_are_not_enough(early: Any) -> None:
    search = BeamSearch(2, 4, 1.0, early)
    search.add(-1.0, ended(1))
    assert not search.done([choice(-90.0)], 3, 10)
    assert search.done([], 3, 10)  # but nothing is left to go on with


def test_only_requests_that_ask_for_it_are_beam_searches() -> None:
    assert BeamSearch.for_request(make_params(n=3), ()) is None
    params = make_params(n=2, best_of=3, **beam_params(length_penalty=0.5, early_stopping="never"))
    assert BeamSearch.for_request(params, {2}) == BeamSearch(3, 6, 0.5, "never")
