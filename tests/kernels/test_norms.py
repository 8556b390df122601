"""Both norms on a CPU, with and without the residual addition before, against NumPy in float64."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_kernels.norms import add_layer_norm, add_rms_norm, layer_norm, norm, rms_norm

DTYPES = (jnp.float32, jnp.bfloat16)
EPS = 1e-5
shapes = st.tuples(st.integers(1, 40), st.one_of(st.integers(1, 50), st.just(1600)))


def numbers(seed: int, *shape: int, dtype: Any = jnp.float32, scale: float = 1.0) -> jax.Array:
    return jnp.asarray(scale * np.random.default_rng(seed).standard_normal(shape), dtype)


def expected_norm(rows: np.ndarray, weight: Any, bias: Any, centred: bool) -> Any:
    """The norm of each row in float64, and the size of what is subtracted to get it."""
    apart = rows - rows.mean(axis=1, keepdims=True) if centred else rows
    scale = 1 / np.sqrt(np.mean(apart**2, axis=1, keepdims=True) + EPS)
    wide = np.asarray(weight, np.float64)
    added = np.zeros(rows.shape[1]) if bias is None else np.asarray(bias, np.float64)
    sizes = np.abs(rows).max(axis=1, keepdims=True) * scale * np.abs(wide) + np.abs(added)
    return apart * scale * wide + added, sizes if centred else np.zeros(rows.shape)


def close(found: jax.Array, expected: np.ndarray, sizes: np.ndarray, dtype: Any) -> None:
    """Within a rounding to the dtype, and some of float32's, also of the differences."""
    eps = float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    wrong = np.abs(np.asarray(found, np.float64) - expected)
    assert (wrong <= (eps + 2e-6) * np.abs(expected) + 2e-6 * sizes + 1e-30).all()


@partial(jax.jit, static_argnames=("centred", "dtype"))
def call(
    x: Any, residual: Any, weight: Any, bias: Any, rows: Any, *, centred: bool, dtype: Any
) -> Any:
    """The norm and the sum, which is None without a residual."""
    options: Any = {"eps": EPS} if residual is not None else {"eps": EPS, "dtype": dtype}
    if residual is None:
        normed = (
            layer_norm(x, weight, bias, rows, **options)
            if centred
            else rms_norm(x, weight, rows, **options)
        )
        return normed, None
    if centred:
        return add_layer_norm(x, residual, weight, bias, rows, **options)
    return add_rms_norm(x, residual, weight, rows, **options)


@given(
    shape=shapes,
    wanted=st.integers(-1, 45),
    centred=st.booleans(),
    with_residual=st.booleans(),
    with_bias=st.booleans(),
    offset=st.sampled_from([0.0, 3.0, -100.0]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
def test_norms(
    shape: tuple[int, int],
    wanted: int,
    centred: bool,
    with_residual: bool,
    with_bias: bool,
    offset: float,
    dtype: Any,
    seed: int,
) -> None:
    """`offset` is the rows' mean: the variance loses no digits to it."""
    rows, width = shape
    x = numbers(seed, rows, width) + offset
    residual = numbers(seed + 1, rows, width, dtype=dtype) if with_residual else None
    weight = 1 + numbers(seed + 2, width, scale=0.1)
    bias = numbers(seed + 3, width) if with_bias and centred else None
    # What is normed is the sum as it is kept.
    kept = x if residual is None else (x + residual.astype(jnp.float32)).astype(dtype)
    total = np.asarray(kept, np.float64)
    expected, sizes = expected_norm(total, weight, bias, centred)
    expected[max(wanted, 0) :] = total[max(wanted, 0) :] = 0
    normed, summed = call(
        x, residual, weight, bias, jnp.int32(wanted), centred=centred, dtype=dtype
    )
    assert normed.dtype == dtype
    close(normed, expected, sizes, dtype)
    if residual is not None:
        assert summed.dtype == dtype
        np.testing.assert_array_equal(np.asarray(summed, np.float64), total)


@pytest.mark.parametrize("width", [7, 576, 4099])
def test_a_row_far_from_zero_keeps_its_variance(width: int) -> None:
    """E[x**2] - E[x]**2 would be of 1e8 and have no digit left."""
    x = 10_000 + numbers(0, 3, width)
    found = layer_norm(x, jnp.ones(width), None, jnp.int32(3), eps=EPS, dtype=jnp.float32)
    expected, _ = expected_norm(np.asarray(x, np.float64), np.ones(width), None, True)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-3)


def test_bfloat16_rows_are_normed_with_a_weight_in_float32() -> None:
    """1 + w of a small w: in bfloat16 it would be 1."""
    weight, ones = jnp.full(32, 1 + 2**-9), jnp.ones((1, 32), jnp.bfloat16)
    normed, _ = add_rms_norm(1000 * ones.astype(jnp.float32), ones * 0, weight, jnp.int32(1), eps=0)
    plain = rms_norm(1000 * ones, weight, jnp.int32(1), eps=0.0, dtype=jnp.float32)
    np.testing.assert_allclose(plain, 1 + 2**-9, rtol=1e-6)
    assert (normed == jnp.bfloat16(1 + 2**-9)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("centred", [False, True])
def test_a_row_is_the_same_whatever_is_beside_it(centred: bool, dtype: Any) -> None:
    x, residual = numbers(0, 90, 600), numbers(1, 90, 600, dtype=dtype)
    weight, options = numbers(2, 600), {"centred": centred, "dtype": dtype}
    normed, _ = call(x, residual, weight, None, jnp.int32(90), **options)
    alone, _ = call(x[7:8], residual[7:8], weight, None, jnp.int32(1), **options)
    np.testing.assert_array_equal(alone[0], normed[7])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("centred", [False, True])
def test_what_is_not_a_number_stays_in_its_row(centred: bool, dtype: Any) -> None:
    x = numbers(0, 3, 20).at[1, 4].set(jnp.nan)
    residual, weight = jnp.zeros(x.shape, dtype), jnp.ones(20)
    normed, _ = call(x, residual, weight, None, jnp.int32(3), centred=centred, dtype=dtype)
    found = np.asarray(normed, np.float32)
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False]
    assert np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_of_infinity(dtype: Any) -> None:
    """The other numbers become 0; no mean is subtracted from them."""
    x = jnp.ones((1, 20)).at[0, 4].set(jnp.inf)
    found = np.asarray(rms_norm(x, jnp.ones(20), jnp.int32(1), eps=EPS, dtype=dtype), np.float32)
    assert np.isnan(found[0, 4]) and not np.delete(found, 4).any()


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(("heads", "dim"), [(1, 16), (3, 5), (2, 64)])
def test_rows_take_the_weights_of_heads_in_turn(heads: int, dim: int, centred: bool) -> None:
    """The last of the five tokens is padding."""
    x, weight = numbers(0, 5 * heads, dim), numbers(1, heads, dim)
    bias = numbers(2, heads, dim) if centred else None
    rows = jnp.int32(4 * heads)
    found, _ = norm(x, None, weight, bias, rows, eps=EPS, centred=centred, dtype=jnp.float32)
    for head in range(heads):
        mine = np.asarray(x, np.float64)[head::heads][:4]
        expected, sizes = expected_norm(
            mine, weight[head], None if bias is None else bias[head], centred
        )
        close(found[head::heads][:4], expected, sizes, jnp.float32)
    assert not np.asarray(found)[4 * heads :].any()
