"""RMSNorm on a CPU, with the residual addition before it, against NumPy in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_kernels.rms_norm import add_rms_norm

DTYPES = (jnp.float32, jnp.bfloat16)
EPS = 1e-5
shapes = st.tuples(st.integers(1, 40), st.one_of(st.integers(1, 50), st.just(1600)))


def numbers(seed: int, *shape: int, dtype: Any = jnp.float32, scale: float = 1.0) -> jax.Array:
    return jnp.asarray(scale * np.random.default_rng(seed).standard_normal(shape), dtype)


def close(found: jax.Array, expected: np.ndarray, dtype: Any) -> None:
    """Within a rounding to the dtype, and some of float32's."""
    eps = float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=eps + 2e-6, atol=1e-30)


@given(shapes, st.integers(-1, 45), st.sampled_from(DTYPES), st.integers(0, 2**31))
def test_add_rms_norm(shape: tuple[int, int], wanted: int, dtype: Any, seed: int) -> None:
    rows, width = shape
    x, residual = numbers(seed, rows, width), numbers(seed + 1, rows, width, dtype=dtype)
    weight = numbers(seed + 2, width, dtype=dtype)
    # What is normed is the sum as it is kept.
    total = np.asarray((x + residual.astype(jnp.float32)).astype(dtype), np.float64)
    scale = 1 / np.sqrt(np.mean(total**2, axis=1, keepdims=True) + EPS)
    expected = total * scale * np.asarray(weight, np.float64)
    expected[max(wanted, 0) :] = total[max(wanted, 0) :] = 0
    call = jax.jit(add_rms_norm, static_argnames="eps")
    normed, summed = call(x, residual, weight, jnp.int32(wanted), eps=EPS)
    assert normed.dtype == summed.dtype == dtype
    np.testing.assert_array_equal(np.asarray(summed, np.float64), total)
    close(normed, expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_whatever_is_beside_it(dtype: Any) -> None:
    x, residual = numbers(0, 90, 600), numbers(1, 90, 600, dtype=dtype)
    weight = numbers(2, 600, dtype=dtype)
    normed, _ = add_rms_norm(x, residual, weight, jnp.int32(90), eps=EPS)
    alone, _ = add_rms_norm(x[7:8], residual[7:8], weight, jnp.int32(1), eps=EPS)
    np.testing.assert_array_equal(alone[0], normed[7])


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_a_number_stays_in_its_row(dtype: Any) -> None:
    x = numbers(0, 3, 20).at[1, 4].set(jnp.nan)
    residual, weight = jnp.zeros(x.shape, dtype), jnp.ones(20, dtype)
    normed, _ = add_rms_norm(x, residual, weight, jnp.int32(3), eps=EPS)
    found = np.asarray(normed, np.float32)
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False]
    assert np.isfinite(found[[0, 2]]).all()
