"""Pooled hidden states, against a loop over the sequences."""

import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.worker.step_output import pool_states


@pytest.mark.parametrize(
    ("ends", "padded_rows", "padded_tokens"),
    [([1], 0, 0), ([3], 1, 2), ([2, 3, 7], 1, 1), ([1, 2, 3], 0, 0), ([5, 6], 3, 6)],
)
def test_each_sequence_has_its_own_sum_first_and_last_state(
    ends: list[int], padded_rows: int, padded_tokens: int
) -> None:
    total = ends[-1] + padded_tokens
    hidden = np.random.default_rng(total).integers(-9, 9, (total, 3)).astype(np.float32)
    starts = np.array([0, *ends, *[ends[-1]] * padded_rows], np.int32)
    found = pool_states(jnp.asarray(hidden, jnp.bfloat16), jnp.asarray(starts))
    for states in (found.total, found.first, found.last, found.tokens):
        assert states.dtype == jnp.float32 and np.isfinite(states).all()
    np.testing.assert_array_equal(found.tokens, hidden)
    assert found.total.shape == found.last.shape == (len(ends) + padded_rows, 3)
    for i, (start, end) in enumerate(zip(starts, ends, strict=False)):
        np.testing.assert_array_equal(found.total[i], hidden[start:end].sum(0))
        np.testing.assert_array_equal(found.first[i], hidden[start])
        np.testing.assert_array_equal(found.last[i], hidden[end - 1])
