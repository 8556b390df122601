"""Products of rows in groups on a CPU, each group with its own weight, against NumPy in float64."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpu_kernels.linear.chunks import MIN_TOKENS
from cpu_kernels.linear.float_weights import FloatWeights
from cpu_kernels.linear.gates import ACTIVATIONS
from cpu_kernels.linear.linear import grouped_gated_linear, grouped_linear
from cpu_kernels.linear.panels import pack_panels, panel_shape
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS

DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)
LAYERS = 2
GATES: dict[str, Any] = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf, otypes=[float])(x / 2**0.5)) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
}
# Rows of each group: none, one, a tile, or more than a chunk of x may have.
counts = st.lists(
    st.one_of(st.just(0), st.integers(1, 3), st.sampled_from([ROWS, ROWS + 1, MIN_TOKENS + 5])),
    min_size=1,
    max_size=9,
)
WIDTHS, SIZES = (1, COLUMNS, 2 * COLUMNS + 3), (1, 24, 37)


def numbers(seed: int, *shape: int, dtype: Any = jnp.float32, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def panels_of(weights: np.ndarray, parts: int = 1) -> jax.Array:
    """Weights in panels, packed into memory that held NaN."""
    *stack, rows, size = weights.shape
    out = np.full((*stack, *panel_shape(rows, size, weights.dtype, parts)), np.nan, weights.dtype)
    return jnp.asarray(pack_panels(weights, out, parts=parts))


@partial(jax.jit, static_argnames="width")
def product(x: Any, panels: Any, starts: Any, layer: Any, *, width: int) -> jax.Array:
    return grouped_linear(x, FloatWeights(panels), starts, width=width, layer=layer)


@partial(jax.jit, static_argnames=("width", "activation"))
def gated_product(
    x: Any, panels: Any, bias: Any, starts: Any, layer: Any, *, width: int, activation: str
) -> jax.Array:
    options: dict[str, Any] = {"width": width, "activation": activation, "dtype": x.dtype}
    return grouped_gated_linear(x, FloatWeights(panels), bias, starts, layer=layer, **options)


def starts_of(rows: list[int]) -> np.ndarray:
    return np.cumsum([0, *rows]).astype(np.int32)


def times(x: Any, weights: np.ndarray, rows: list[int], layer: int = LAYERS - 1) -> np.ndarray:
    """The product with a layer of weights [LAYERS, groups, out, in] that are not in panels."""
    width = weights.shape[-2]
    return np.asarray(
        product(x, panels_of(weights), starts_of(rows), jnp.int32(layer), width=width)
    )


def gated(
    x: Any, weights: np.ndarray, rows: list[int], *, bias: Any = None, activation: str = "silu"
) -> np.ndarray:
    panels, layer = panels_of(weights, 2), jnp.int32(LAYERS - 1)
    options: dict[str, Any] = {"width": weights.shape[-2] // 2, "activation": activation}
    return np.asarray(gated_product(x, panels, bias, starts_of(rows), layer, **options))


def exact(x: Any, weights: Any, rows: list[int]) -> np.ndarray:
    """Group by group, and zeros for the rows of no group."""
    out = np.zeros((len(x), weights.shape[-2]))
    starts = starts_of(rows)
    for group, weight in enumerate(np.asarray(weights, np.float64)):
        here = slice(starts[group], starts[group + 1])
        out[here] = np.asarray(x, np.float64)[here] @ weight.T
    return out


@given(
    rows=counts,
    padding=st.integers(0, 3),
    width=st.sampled_from(WIDTHS),
    size=st.sampled_from(SIZES),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
@example([0, 0], 1, 1, 1, jnp.float32, 0)  # nobody has a row
@example([0, 0, 2 * MIN_TOKENS, 0], 0, COLUMNS, 3000, jnp.float32, 0)  # one has them all
@example([1] * 8, 0, 20 * COLUMNS, 24, jnp.bfloat16, 0)
def test_any_groups(
    rows: list[int], padding: int, width: int, size: int, dtype: Any, seed: int
) -> None:
    x = numbers(seed, sum(rows) + padding, size, dtype=dtype)
    x[sum(rows) :] = np.nan
    weights = numbers(seed + 1, LAYERS, len(rows), width, size, dtype=dtype)
    found = times(x, weights, rows)
    tolerance = 8 * np.finfo(np.float32).eps * (np.sqrt(size) + 8) * (np.sqrt(size) + 1)
    np.testing.assert_allclose(found, exact(x, weights[-1], rows), rtol=0, atol=tolerance)


@given(
    rows=counts,
    padding=st.integers(0, 3),
    width=st.sampled_from(WIDTHS),
    with_bias=st.booleans(),
    activation=st.sampled_from(ACTIVATIONS),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
def test_any_groups_with_their_gate(
    rows: list[int],
    padding: int,
    width: int,
    with_bias: bool,
    activation: str,
    dtype: Any,
    seed: int,
) -> None:
    size = 21
    x = numbers(seed, sum(rows) + padding, size, dtype=dtype)
    weights = numbers(seed + 1, LAYERS, len(rows), 2 * width, size, dtype=dtype, scale=0.7)
    bias = numbers(seed + 2, len(rows), 2 * width, dtype=dtype) if with_bias else None
    sums = exact(x, weights[-1], rows)
    if bias is not None:
        sums[: sum(rows)] += np.repeat(bias.astype(np.float64), rows, axis=0)
    gate, up = np.split(sums, 2, axis=1)
    if activation == "clipped_swiglu":
        gate, up = np.minimum(gate, 7), np.clip(up, -7, 7) + 1
        expected = gate / (1 + np.exp(-1.702 * gate)) * up
    else:
        expected = GATES[activation](gate) * up
    expected[sum(rows) :] = 0
    found = gated(x, weights, rows, bias=bias, activation=activation)
    assert found.dtype == dtype
    eps = float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    # The rounding errors of both products, each times the other factor; relu2's is squared.
    room = 3e-5 * (1 + np.abs(gate)) * (1 + np.abs(gate) + np.abs(up))
    wrong = np.abs(found.astype(np.float64) - expected)
    assert (wrong <= (eps + 2e-6) * np.abs(expected) + room).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gates_over_all_numbers(activation: str) -> None:
    """Each to nearly the precision of float32."""
    gate = np.concatenate([np.linspace(-12, 12, 4001), [-1e30, -200.0, 200.0]]).astype(np.float32)
    weights = np.ones((LAYERS, 1, 2, 2), np.float32) * np.eye(2, dtype=np.float32)
    x = np.stack([gate, np.full_like(gate, 3)], axis=1)
    found = gated(x, weights, [len(x)], activation=activation)[:, 0]
    wide, up = gate.astype(np.float64), 3.0
    with np.errstate(over="ignore"):
        if activation == "clipped_swiglu":
            wide, up = np.minimum(wide, 7), 4.0
            expected = wide / (1 + np.exp(-1.702 * wide)) * up
        else:
            expected = GATES[activation](wide) * up
    np.testing.assert_allclose(found, expected.astype(np.float32), rtol=4e-7, atol=2e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_whatever_is_beside_it(dtype: Any) -> None:
    """Alone in its group, with rows of its own group, and with those of many groups."""
    size, width, groups = 600, 3 * COLUMNS + 5, 6
    x = numbers(0, 2 * MIN_TOKENS + 9, size, dtype=dtype)
    weights = numbers(1, LAYERS, groups, 2 * width, size, dtype=dtype)
    whole = [0, 0, len(x), 0, 0, 0]
    plain, with_gate = times(x, weights, whole), gated(x, weights, whole)
    for start, rows in [
        (0, [0, 0, 1, 0, 0, 0]),
        (7, [0, 0, 4, 1, 1, 2]),
        (20, [3, 9, 2 * MIN_TOKENS - 20, 0, 0, 1]),
    ]:
        mine = slice(sum(rows[:2]), sum(rows[:3]))
        some = np.concatenate([x[-mine.start :][: mine.start], x[start : start + rows[2]], x[:5]])
        expected = slice(start, start + rows[2])
        np.testing.assert_array_equal(times(some, weights, rows)[mine], plain[expected])
        np.testing.assert_array_equal(gated(some, weights, rows)[mine], with_gate[expected])


@pytest.mark.parametrize("rows", [[0, 2, 0, ROWS + 1, 0], [0, 0, 0, 3, 0]])
def test_nothing_is_read_beyond_a_layer_or_of_a_group_without_rows(rows: list[int]) -> None:
    """All other weights are NaN, and rows end in the middle of a vector."""
    weights = np.full((3, len(rows), 2 * COLUMNS + 10, 13), np.nan, np.float32)
    for group, count in enumerate(rows):
        if count:
            weights[1, group] = numbers(group, *weights.shape[2:])
    x = numbers(9, sum(rows), 13)
    found = times(x, weights, rows, layer=1)
    expected = exact(x, np.nan_to_num(weights[1]), rows)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("asked", "taken"), [(0, 0), (LAYERS - 1, -1), (-1, 0), (LAYERS, -1)])
def test_the_layers_at_the_ends_and_beyond(asked: int, taken: int) -> None:
    x, weights = numbers(0, 5, 17), numbers(1, LAYERS, 3, 5, 17)
    found = times(x, weights, [2, 0, 3], layer=asked)
    np.testing.assert_allclose(found, exact(x, weights[taken], [2, 0, 3]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("starts", [[0, 9, 2, 4], [0, -1, 3, 99], [0, 0, 4, 4]])
def test_starts_out_of_order_stay_within_x(starts: list[int]) -> None:
    """No sort makes such starts. A group then begins where the one before it ends."""
    x, weights = numbers(0, 4, 17), numbers(1, 1, 3, 5, 17)
    ends = np.clip(np.maximum.accumulate(starts), 0, 4)
    given = (jnp.asarray(x), panels_of(weights), jnp.int32(starts), jnp.int32(0))
    found = product(*given, width=5)
    expected = exact(x, weights[0], np.diff(ends).tolist())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_panels_of_another_shape_are_refused() -> None:
    x, starts, layer = jnp.ones((2, 40)), jnp.int32([0, 1, 2]), jnp.int32(0)
    panels = panels_of(numbers(0, LAYERS, 2, COLUMNS - 2, 40))
    with pytest.raises(ValueError, match=rf"weight \[{COLUMNS + 1}, 40\] must be \(2, 48"):
        grouped_linear(x, FloatWeights(panels), starts, width=COLUMNS + 1, layer=layer)
    with pytest.raises(ValueError, match=r"of 1 groups must be \[1, \.\.\.\] or \[layers, 1, "):
        grouped_linear(x, FloatWeights(panels), starts[:2], width=COLUMNS - 2, layer=layer)
    options: dict[str, Any] = {"layer": layer, "dtype": jnp.float32}
    with pytest.raises(ValueError, match=rf"gate and up \[{COLUMNS - 2}, 40\] must be \(2, 48"):
        grouped_gated_linear(
            x, FloatWeights(panels), None, starts, width=(COLUMNS - 2) // 2, **options
        )


def test_the_weights_are_not_copied() -> None:
    def all_layers(x: jax.Array, panels: jax.Array, starts: jax.Array) -> jax.Array:
        def step(x: jax.Array, layer: jax.Array) -> tuple[jax.Array, None]:
            return grouped_linear(x, FloatWeights(panels), starts, width=48, layer=layer), None

        return jax.lax.scan(step, x, jnp.arange(len(panels), dtype=jnp.int32))[0]

    x, panels = jnp.asarray(numbers(0, 4, 48)), panels_of(numbers(1, 5, 6, 48, 48))
    compiled = jax.jit(all_layers).lower(x, panels, starts_of([1, 0, 2, 0, 1, 0])).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < panels[0, 0].nbytes
