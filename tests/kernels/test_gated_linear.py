"""SwiGLU's first product with its gate on a CPU, against NumPy in float64 and the plain product."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_kernels.linear.chunks import MIN_TOKENS, PANEL_CHUNKS
from cpu_kernels.linear.float_weights import FloatWeights
from cpu_kernels.linear.linear import gated_linear, linear
from cpu_kernels.linear.panels import pack_panels, panel_shape
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS

DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)
LAYERS = 2


def numbers(seed: int, *shape: int, dtype: Any = jnp.float32, scale: float = 1.0) -> jax.Array:
    return jnp.asarray(scale * np.random.default_rng(seed).standard_normal(shape), dtype)


def panels_of(stack: Any) -> jax.Array:
    """A stack of gate and up in panels, packed into memory that held NaN."""
    layers, rows, size = stack.shape
    out = np.full((layers, *panel_shape(rows, size, stack.dtype, 2)), np.nan, stack.dtype)
    return jnp.asarray(pack_panels(np.asarray(stack), out, parts=2))


@partial(jax.jit, static_argnames=("width", "dtype"))
def call(
    x: Any, panels: Any, bias: Any, layer: Any, rows: Any, *, width: int, dtype: Any
) -> jax.Array:
    weight = FloatWeights(panels)
    return gated_linear(x, weight, bias, width=width, layer=layer, num_rows=rows, dtype=dtype)


def gated(x: Any, stack: Any, *, rows: int | None = None, bias: Any = None) -> np.ndarray:
    """The gated product with the last layer of a stack that is not in panels; in the dtype of x."""
    panels, width = panels_of(stack), stack.shape[1] // 2
    layer, count = jnp.int32(len(stack) - 1), jnp.int32(len(x) if rows is None else rows)
    return np.asarray(call(x, panels, bias, layer, count, width=width, dtype=x.dtype))


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
    x = numbers(seed, tokens, size, dtype=dtype)
    stack = numbers(seed + 1, LAYERS, 2 * width, size, dtype=dtype, scale=5 / size**0.5)
    bias = numbers(seed + 2, 2 * width, dtype=dtype) if with_bias else None
    products = np.asarray(x, np.float64) @ np.asarray(stack[-1], np.float64).T
    if bias is not None:
        products += np.asarray(bias, np.float64)
    gate, up = np.split(products, 2, axis=1)
    expected = gate / (1 + np.exp(-gate)) * up
    expected[max(wanted, 0) :] = 0
    found = gated(x, stack, rows=wanted, bias=bias)
    assert found.dtype == dtype
    eps = float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    # The products' rounding errors, as of the plain product, times the other factor.
    rounding = 8 * np.finfo(np.float32).eps * (np.sqrt(size) + 8) * 5
    room = rounding * (np.abs(gate) + np.abs(up) + 2)
    wrong = np.abs(found.astype(np.float64) - expected)
    assert (wrong <= (eps + 2e-6) * np.abs(expected) + room).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [2 * PANEL_CHUNKS * COLUMNS + 3, 3 * COLUMNS])
def test_chunks_of_several_pairs_and_of_x(width: int, dtype: Any) -> None:
    """The plain product's numbers and the bias, gated."""
    tokens, size = 2 * MIN_TOKENS + 5, 24 if width > 1000 else 9000
    x, stack = numbers(0, tokens, size, dtype=dtype), numbers(1, 1, 2 * width, size, dtype=dtype)
    bias = numbers(2, 2 * width, dtype=dtype)
    plain_weight = FloatWeights(jnp.asarray(pack_panels(np.asarray(stack[0]))))
    plain = linear(x, plain_weight, width=2 * width)
    sums = np.asarray(plain + bias.astype(jnp.float32), np.float64)
    gate, up = np.split(sums, 2, axis=1)
    share = np.where(gate < 0, np.exp(-np.abs(gate)), 1) / (1 + np.exp(-np.abs(gate)))
    eps = float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    # float16 rounds small numbers to multiples of 2^-24.
    least = 2.0**-25 if dtype == jnp.float16 else 1e-30
    found = gated(x, stack, bias=bias).astype(np.float64)
    np.testing.assert_allclose(found, gate * share * up, rtol=eps + 2e-6, atol=least)


@pytest.mark.parametrize("gate", [-np.inf, -200.0, -88.0, 0.0, 88.0, 1e30, np.inf, np.nan])
def test_the_gate_at_the_ends(gate: float) -> None:
    found = gated(jnp.ones((1, 1)), jnp.float32([[[gate], [2.0]]]))
    expected = np.float32(jax.nn.silu(jnp.float32(gate)) * 2)
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-6, atol=1e-35)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_whatever_is_beside_it(dtype: Any) -> None:
    x, stack = numbers(0, 150, 600, dtype=dtype), numbers(1, 1, 200, 600, dtype=dtype)
    whole = gated(x, stack)
    for start, count in [(0, 1), (7, 4), (20, 9), (4, 66)]:
        some = gated(x[start : start + count], stack)
        np.testing.assert_array_equal(some, whole[start : start + count])


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_a_number_stays_in_its_row(dtype: Any) -> None:
    x = numbers(0, 3, 20, dtype=dtype).at[1, 4].set(jnp.nan)
    found = gated(x, numbers(1, LAYERS, 66, 20, dtype=dtype)).astype(np.float32)
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False]


def test_panels_of_another_shape_are_refused() -> None:
    stack = numbers(0, 1, 2 * COLUMNS + 2, 40)
    plain = jnp.asarray(pack_panels(np.asarray(stack)))  # one panel less than in two parts
    message = rf"gate and up \[{2 * COLUMNS + 2}, 40\] must be \(4, 48, {COLUMNS}\), got \(1, 3"
    arguments = {"width": COLUMNS + 1, "layer": jnp.int32(0), "num_rows": jnp.int32(2)}
    with pytest.raises(ValueError, match=message):
        gated_linear(
            numbers(1, 2, 40), FloatWeights(plain), **arguments, dtype=jnp.dtype(jnp.float32)
        )
