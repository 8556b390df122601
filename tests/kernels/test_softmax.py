"""The sums of softmaxes on a CPU against NumPy, and numbers that are none."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpu_kernels.sampling.softmax_sums import softmax_sums
from jax_engine.operations import numba, xla


@given(
    rows=st.sampled_from((1, 3, 16)),
    size=st.sampled_from((1, 2, 15, 16, 17, 64, 1000)),
    scale=st.sampled_from((0.0, 1.0, 80.0)),
    seed=st.integers(0, 99),
)
def test_the_sums_of_softmaxes(rows: int, size: int, scale: float, seed: int) -> None:
    x = np.random.default_rng(seed).normal(0, scale, (rows, size)).astype(np.float32)
    x[:, size // 2 + 1 :: 3] = -np.inf
    top, sums = softmax_sums(jnp.asarray(x))
    np.testing.assert_array_equal(top, x.max(axis=1))
    expected = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True)).sum(axis=1)
    np.testing.assert_allclose(sums, expected, rtol=2e-6)
    for name in ("softmax", "logsumexp"):
        ours, theirs = (getattr(form, name)(jnp.asarray(x)) for form in (numba, xla))
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)


def test_rows_of_infinities_and_no_numbers() -> None:
    """They are as XLA's: the logarithm of nothing is -inf, and NaN gives NaN."""
    inf, nan = np.inf, np.nan
    x = np.array([[-inf] * 20, [0.0] * 20, [0.0] * 20, [nan] * 20], np.float32)
    x[1, 18], x[2, 3] = nan, inf
    logs = np.asarray(numba.logsumexp(jnp.asarray(x)))
    np.testing.assert_array_equal(logs, np.asarray(xla.logsumexp(jnp.asarray(x))))
    np.testing.assert_array_equal(logs, np.array([-inf, nan, inf, nan], np.float32))
