"""From arrays to the log-probabilities of a request, worked out here in float64."""

from math import exp, log
from typing import Any

import numpy as np
import pytest

from jax_engine import SamplingParams
from jax_engine.engine.engine_core_output import LogprobLists
from jax_engine.engine.results import add_rows, add_sampled, most_probable
from jax_engine.step import SampleLogprobs

# Row 0 is another request's. In row 1 token 3 was drawn, which is the second.
ARRAYS = SampleLogprobs(
    np.array([-0.5, -1.25], np.float32),
    np.array([1, 2], np.int32),
    np.array([[9, 8, 7], [5, 3, 1]], np.int32),
    np.array([[-0.5, -1.0, -1.5], [-0.25, -1.25, -2.0]], np.float32),
)
# Logits of tokens 0 to 5. Two are equal; they have the same rank, and the first one goes first.
LOGITS = np.array([[0.0] * 6, [2.0, 800.0, -np.inf, 798.0, 799.0, 799.0]], np.float32)
SUM = 1 + exp(-2) + 2 * exp(-1)  # of exp(logit - 800)


def entries(lists: LogprobLists) -> dict[int, tuple[float, int]]:
    """(log-probability, rank) of each token at the only position, in order."""
    assert lists.counts == [len(lists.token_ids)] == [len(set(lists.token_ids))]
    return dict(zip(lists.token_ids, zip(lists.logprobs, lists.ranks, strict=True), strict=True))


def sampled(params: SamplingParams, logits: np.ndarray | None = LOGITS) -> Any:
    lists = LogprobLists()
    add_sampled(lists, ARRAYS, logits, 1, 3, params)
    return entries(lists)


@pytest.mark.parametrize(
    ("num_top", "others"),
    [
        (0, {}),
        (1, {5: (-0.25, 1)}),
        (2, {5: (-0.25, 1)}),  # the drawn one is among them
        (3, {5: (-0.25, 1), 1: (-2.0, 3)}),
        (-1, {5: (-0.25, 1), 1: (-2.0, 3)}),
    ],
)
def test_the_drawn_token_comes_before_the_most_probable(num_top: int, others: Any) -> None:
    lists = LogprobLists()
    add_rows(lists, ARRAYS, slice(1, 2), [3], num_top)
    expected = [(3, (-1.25, 2)), *others.items()]
    assert list(entries(lists).items()) == expected
    if num_top != -1:
        assert list(sampled(SamplingParams(logprobs=num_top), None).items()) == expected


def test_rows_come_one_behind_the_other() -> None:
    lists = LogprobLists([0])
    add_rows(lists, ARRAYS, slice(0, 2), [9, 3], 1)
    expected = LogprobLists([0, 1, 2], [9, 3, 5], [-0.5, -1.25, -0.25], [1, 2, 1])
    assert lists == expected


def of_logits(token: int, rank: int) -> tuple[Any, int]:
    return pytest.approx(float(LOGITS[1, token]) - 800 - log(SUM), abs=1e-4), rank


def test_all_of_the_vocabulary_is_computed_from_the_logits() -> None:
    """The drawn token keeps the sampler's number. The others do not overflow; best first."""
    found = sampled(SamplingParams(logprobs=-1))
    assert list(found) == [3, 1, 4, 5, 0, 2]
    assert found == {
        3: (-1.25, 2), 1: of_logits(1, 1), 4: of_logits(4, 2), 5: of_logits(5, 2),
        0: of_logits(0, 5), 2: (-np.inf, 6),
    }  # fmt: skip


def test_tokens_by_id_are_looked_up_in_the_logits() -> None:
    found = sampled(SamplingParams(logprob_token_ids=[0, 3, 5]))
    assert list(found) == [3, 0, 5]
    assert found == {3: (-1.25, 2), 0: of_logits(0, 5), 5: of_logits(5, 2)}


def test_a_token_that_is_certain_is_not_more_than_certain() -> None:
    """Rounding must not give a log-probability above 0."""
    logits = np.array([[-200.0, 0.1, -200.0]], np.float32)
    drawn = SampleLogprobs(
        np.array([-200.0], np.float32), np.array([2]), np.zeros((1, 0), int), np.zeros((1, 0))
    )
    lists = LogprobLists()
    add_sampled(lists, drawn, logits, 0, 0, SamplingParams(logprob_token_ids=[1]))
    assert entries(lists)[1] == (0.0, 1)


def test_the_most_probable_of_equals_are_the_first() -> None:
    assert most_probable(LOGITS[1], 3) == [1, 4, 5]
    assert most_probable(LOGITS[1], 0) == []
    assert most_probable(LOGITS[1], -1) == [1, 4, 5, 3, 0, 2]
