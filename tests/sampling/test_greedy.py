"""The most probable token in two levels: the first of the largest, in any group."""

import jax
import numpy as np
import pytest

from jax_engine.sampling.draw import GROUP, most_probable


@pytest.mark.parametrize("vocab", [1, 5, GROUP - 1, GROUP, GROUP + 1, 3 * GROUP + 7])
def test_the_first_of_the_largest_wins_wherever_it_stands(vocab: int) -> None:
    places = sorted({0, vocab // 2, vocab - 1, min(GROUP - 1, vocab - 1), min(GROUP, vocab - 1)})
    logits = np.full((len(places), vocab), -7.0, np.float32)
    for row, place in enumerate(places):
        logits[row, place:] = -2.0
    logits[0, 1:] = -np.inf
    tokens = jax.jit(most_probable)(logits)
    assert tokens.tolist() == places and tokens.dtype == np.int32
