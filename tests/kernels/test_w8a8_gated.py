"""The gated product in int8 on a CPU, against the oracle's products."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_kernels.linear.chunks import MIN_TOKENS, PANEL_CHUNKS
from cpu_kernels.linear.linear import gated_linear, grouped_gated_linear
from cpu_kernels.linear.w8a8_weights import W8A8Weights
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS
from tests.kernels.w8a8 import by_groups, by_oracle, numbers, packed, relu_gated, weights

DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)


def gated(
    x: Any, codes: Any, scales: Any, bias: Any = None, rows: int = 1000, **more: Any
) -> np.ndarray:
    """The gated product with the last layer of a stack, in the dtype of x."""
    options = {"width": codes.shape[-2] // 2, "activation": "relu", "dtype": x.dtype} | more
    index, count = jnp.int32(len(codes) - 1), jnp.int32(rows)
    held = W8A8Weights(*packed(codes, scales, 2))
    return np.asarray(gated_linear(x, held, bias, layer=index, num_rows=count, **options))


@given(
    tokens=st.one_of(st.integers(1, 2 * ROWS + 3), st.integers(60, 150)),
    width=st.one_of(st.integers(1, 3 * COLUMNS + 5), st.just(4 * COLUMNS)),
    size=st.one_of(st.integers(1, 40), st.just(1600)),
    wanted=st.integers(-1, 160),
    with_bias=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
def test_any_shape(
    tokens: int, width: int, size: int, wanted: int, with_bias: bool, dtype: Any, seed: int
) -> None:
    """The activation is ReLU, so that all of it is equal to the bit."""
    x = jnp.asarray(numbers(seed, tokens, size), dtype)
    codes, scales = weights(seed + 1, 2, 2 * width, size)
    bias = numbers(seed + 2, 1, 2 * width)[0] if with_bias else None
    expected = relu_gated(by_oracle(x, codes[-1], scales[-1]), bias)
    expected[max(wanted, 0) :] = 0
    given_bias = None if bias is None else jnp.asarray(bias)
    found = gated(x, codes, scales, given_bias, wanted)
    with np.errstate(over="ignore"):  # float16 has infinity beyond 65,504
        rounded = np.asarray(expected).astype(dtype)
    np.testing.assert_array_equal(found, rounded)


@pytest.mark.parametrize("width", [2 * PANEL_CHUNKS * COLUMNS + 3, 3 * COLUMNS])
def test_chunks_of_several_pairs_and_of_x(width: int) -> None:
    tokens, size = 2 * MIN_TOKENS + 5, 24 if width > 1000 else 9000
    x, (codes, scales) = jnp.asarray(numbers(0, tokens, size)), weights(1, 1, 2 * width, size)
    bias = numbers(2, 1, 2 * width)[0]
    expected = relu_gated(by_oracle(x, codes[0], scales[0]), bias)
    np.testing.assert_array_equal(gated(x, codes, scales, jnp.asarray(bias)), expected)


def test_the_gate_is_the_activation_asked_for() -> None:
    x, (codes, scales) = jnp.asarray(numbers(0, 5, 40)), weights(1, 1, 14, 40)
    scales /= np.abs(np.asarray(x)).max() * 1000  # products of about 1, where a gate is curved
    gate, up = np.split(by_oracle(x, codes[0], scales[0]).astype(np.float64), 2, axis=1)
    found = gated(x, codes, scales, activation="silu")
    np.testing.assert_allclose(found, gate / (1 + np.exp(-gate)) * up, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "padding"),
    [([0, 2, 0, ROWS + 1], 0), ([3, 0, 0, 0], 2), ([0] * 4, 4), ([9, 71, 1, 5], 3)],
)
@pytest.mark.parametrize("with_bias", [False, True])
def test_groups_have_weights_of_their_own(rows: list[int], padding: int, with_bias: bool) -> None:
    x, (codes, scales) = numbers(9, sum(rows) + padding, 53), weights(1, 2, 4, 2 * COLUMNS + 6, 53)
    bias = numbers(2, 4, 2 * COLUMNS + 6)
    of_rows = np.repeat(bias, rows, axis=0) if with_bias else None
    products = by_groups(x, codes[1], scales[1], rows)[: sum(rows)]
    expected = np.zeros((len(x), COLUMNS + 3), np.float32)
    expected[: sum(rows)] = relu_gated(products, of_rows)
    scales[:, [count == 0 for count in rows]] = np.nan
    x[sum(rows) :] = np.nan
    starts = jnp.asarray(np.cumsum([0, *rows]), jnp.int32)
    options: dict[str, Any] = {"width": COLUMNS + 3, "layer": jnp.int32(1), "activation": "relu"}
    added = jnp.asarray(bias) if with_bias else None
    held = W8A8Weights(*packed(codes, scales, 2))
    found = grouped_gated_linear(
        jnp.asarray(x), held, added, starts, **options, dtype=jnp.dtype("float32")
    )
    np.testing.assert_array_equal(found, expected)


def test_panels_of_another_shape_are_refused() -> None:
    held = W8A8Weights(*packed(*weights(0, 2, COLUMNS - 2, 40), 2))
    x = jnp.ones((2, 40))
    options: dict[str, Any] = {"layer": jnp.int32(0), "dtype": jnp.dtype("float32")}
    with pytest.raises(ValueError, match=rf"\[{2 * COLUMNS + 2}, 40\] must be \(4, 16"):
        gated_linear(x, held, width=COLUMNS + 1, num_rows=jnp.int32(2), **options)
    starts, width = jnp.int32([0, 2]), COLUMNS // 2 - 1
    with pytest.raises(ValueError, match=r"of 1 groups must be \[1, \.\.\.\] or \[layers, 1, "):
        grouped_gated_linear(x, held, None, starts, width=width, **options)
