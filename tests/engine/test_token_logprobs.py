"""From arrays to the log-probabilities of a request, worked out here in float64."""

from math import exp, log

import numpy as np
import pytest

from jax_engine import SamplingParams
from jax_engine.engine.token_logprobs import most_probable, sampled_logprobs, token_logprobs
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


def word(token: int) -> str:
    return f"<{token}>"


@pytest.mark.parametrize(
    ("num_top", "others"),
    [
        (0, []),
        (1, [(5, -0.25, 1)]),
        (2, [(5, -0.25, 1)]),  # the drawn one is among them
        (3, [(5, -0.25, 1), (1, -2.0, 3)]),
        (-1, [(5, -0.25, 1), (1, -2.0, 3)]),
    ],
)
def test_the_drawn_token_comes_before_the_most_probable(num_top: int, others: list) -> None:
    entry = token_logprobs(ARRAYS, 1, 3, num_top, word)
    found = [(token, one.logprob, one.rank, one.decoded_token) for token, one in entry.items()]
    assert found == [(3, -1.25, 2, "<3>"), *((*one, word(one[0])) for one in others)]
    params = SamplingParams(logprobs=None if num_top == -1 else num_top)
    if num_top != -1:
        assert sampled_logprobs(ARRAYS, None, 1, 3, params, word) == entry


def of_logits(token: int, rank: int) -> tuple:
    value = float(LOGITS[1, token]) - 800 - log(SUM)
    return pytest.approx(value, abs=1e-4), rank, word(token)


def test_all_of_the_vocabulary_is_computed_from_the_logits() -> None:
    """Of the drawn token what the sampler said; the others without overflow, best first."""
    entry = sampled_logprobs(ARRAYS, LOGITS, 1, 3, SamplingParams(logprobs=-1), word)
    assert list(entry) == [3, 1, 4, 5, 0, 2]
    found = {token: (one.logprob, one.rank, one.decoded_token) for token, one in entry.items()}
    assert found.pop(3) == (-1.25, 2, "<3>")
    assert found.pop(2) == (-np.inf, 6, "<2>")
    assert found == {
        1: of_logits(1, 1), 4: of_logits(4, 2), 5: of_logits(5, 2), 0: of_logits(0, 5),
    }  # fmt: skip


def test_tokens_by_id_are_looked_up_in_the_logits() -> None:
    params = SamplingParams(logprob_token_ids=[0, 3, 5])
    entry = sampled_logprobs(ARRAYS, LOGITS, 1, 3, params, word)
    found = {token: (one.logprob, one.rank, one.decoded_token) for token, one in entry.items()}
    assert list(found) == [3, 0, 5]
    assert found == {3: (-1.25, 2, "<3>"), 0: of_logits(0, 5), 5: of_logits(5, 2)}


def test_a_token_that_is_certain_is_not_more_than_certain() -> None:
    """Rounding must not give a log-probability above 0."""
    logits = np.array([[-200.0, 0.1, -200.0]], np.float32)
    drawn = SampleLogprobs(
        np.array([-200.0], np.float32), np.array([2]), np.zeros((1, 0), int), np.zeros((1, 0))
    )
    entry = sampled_logprobs(drawn, logits, 0, 0, SamplingParams(logprob_token_ids=[1]), word)
    assert entry[1].logprob == 0.0 and entry[1].rank == 1


def test_the_most_probable_of_equals_are_the_first() -> None:
    assert most_probable(LOGITS[1], 3) == [1, 4, 5]
    assert most_probable(LOGITS[1], 0) == []
    assert most_probable(LOGITS[1], -1) == [1, 4, 5, 3, 0, 2]
