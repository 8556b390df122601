"""Merged weights compute what the weights and the adapter compute apart."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.lora import merged, merged_weights, scaling


@given(st.tuples(*[st.integers(1, 5)] * 3), st.floats(-4, 4), st.integers(0, 99))
def test_a_merged_matrix_is_the_matrix_and_the_adapter(
    sizes: tuple[int, int, int], s: float, seed: int
) -> None:
    out, rank, size = sizes
    rng = np.random.default_rng(seed)
    w, a, b = (
        rng.normal(size=(out, size)),
        rng.normal(size=(rank, size)),
        rng.normal(size=(out, rank)),
    )
    x = rng.normal(size=size)
    np.testing.assert_allclose(merged(w, a, b, s) @ x, w @ x + s * (b @ (a @ x)), atol=1e-12)
    assert np.linalg.matrix_rank(merged(w, a, b, s) - w, tol=1e-9) <= rank


def test_half_precision_is_added_in_float64() -> None:
    w, a, b = (np.full((1, 1), value, np.float16) for value in (1.0, 2.0**-10, 2.0**-10))
    assert merged(w, a, b, 1.0).tolist() == [[1.0 + 2.0**-20]]


def test_rank_stabilised_scaling_grows_with_the_rank() -> None:
    assert [scaling(16, rank, rank_stabilised=True) for rank in (1, 4, 16)] == [16, 8, 4]
    assert [scaling(16, rank) for rank in (1, 4, 16)] == [16, 4, 1]


def test_other_weights_stay_and_none_is_changed_in_place() -> None:
    weights = {"a.weight": np.ones((2, 2)), "b.weight": np.ones((2, 2))}
    one = SimpleNamespace(
        name="a", a=np.ones((1, 2)), b=np.ones((2, 1)), scaling=1.0, bias=np.ones(2)
    )
    found = merged_weights(weights, [one])
    assert found["b.weight"] is weights["b.weight"] and (weights["a.weight"] == 1).all()
    assert found.keys() == {"a.weight", "a.bias", "b.weight"}
    with pytest.raises(KeyError, match=r"c\.weight"):
        one.name = "c"
        merged_weights(weights, [one])
