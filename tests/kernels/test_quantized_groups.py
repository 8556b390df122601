"""Products with codes by groups and with a gate, against the plain products of the same kernel."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpu_kernels.linear.chunks import MIN_TOKENS, PANEL_CHUNKS
from cpu_kernels.linear.coded_weights import CodedWeights
from cpu_kernels.linear.gates import ACTIVATIONS
from cpu_kernels.linear.linear import (
    gated_linear,
    grouped_gated_linear,
    grouped_linear,
    linear,
)
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS
from jax_engine.weights.codes import Kind
from tests.kernels.quantized import KINDS, Packed, packed, rows_of

DTYPES = (jnp.float32, jnp.bfloat16)
counts = st.lists(
    st.one_of(st.just(0), st.integers(1, 3), st.sampled_from([ROWS, ROWS + 1, MIN_TOKENS + 5])),
    min_size=1,
    max_size=6,
)


@partial(jax.jit, static_argnames=("kinds", "width", "dtype"))
def plain(x: Any, panels: Any, places: Any, *, kinds: Any, width: int, dtype: Any) -> jax.Array:
    return linear(x, CodedWeights(panels, places, kinds, jnp.dtype(dtype)), width=width)


@partial(jax.jit, static_argnames=("kinds", "width", "dtype"))
def grouped(
    x: Any, panels: Any, places: Any, starts: Any, *, kinds: Any, width: int, dtype: Any
) -> jax.Array:
    weight = CodedWeights(panels, places, kinds, jnp.dtype(dtype))
    return grouped_linear(x, weight, starts, width=width, layer=jnp.int32(1))


@partial(jax.jit, static_argnames=("kinds", "width", "activation", "dtype"))
def gated(
    x: Any,
    panels: Any,
    places: Any,
    bias: Any,
    *,
    kinds: Any,
    width: int,
    activation: str,
    dtype: Any,
) -> jax.Array:
    options: dict[str, Any] = {"width": width, "activation": activation}
    options |= {"dtype": jnp.dtype(jnp.float32)}
    options |= {"layer": jnp.int32(len(panels) - 1), "num_rows": jnp.int32(len(x))}
    weight = CodedWeights(panels, places, kinds, jnp.dtype(dtype))
    return gated_linear(x, weight, bias, **options)


@partial(jax.jit, static_argnames=("kinds", "width", "dtype", "out_dtype"))
def grouped_gated(
    x: Any,
    panels: Any,
    places: Any,
    bias: Any,
    starts: Any,
    *,
    kinds: Any,
    width: int,
    dtype: Any,
    out_dtype: Any,
) -> jax.Array:
    options: dict[str, Any] = {"width": width, "layer": jnp.int32(1)}
    weight = CodedWeights(panels, places, kinds, jnp.dtype(dtype))
    return grouped_gated_linear(x, weight, bias, starts, dtype=jnp.dtype(out_dtype), **options)


def random_x(tokens: int, size: int) -> np.ndarray:
    return np.random.default_rng(tokens + size).standard_normal((tokens, size)).astype(np.float32)


def products(x: np.ndarray, rows: np.ndarray, kinds: tuple[Kind, ...], dtype: Any) -> np.ndarray:
    """The plain product with a matrix."""
    panels, places, held = packed([rows], kinds)
    options: dict[str, Any] = {"kinds": held, "width": len(rows), "dtype": dtype}
    return np.asarray(plain(x, panels[0], places[0], **options))


def of_layers(layers: list[list[np.ndarray]], kinds: tuple[Kind, ...], *, parts: int = 1) -> Packed:
    """Layers of groups, [layers, groups, ...]."""
    one = packed([rows for layer in layers for rows in layer], kinds, parts=parts)
    panels, places = (a.reshape(len(layers), -1, *a.shape[1:]) for a in one[:2])
    return Packed(panels, places, one.kinds)


def random_layers(
    groups: int, width: int, size: int, kinds: tuple[Kind, ...], seed: int
) -> list[list[np.ndarray]]:
    """Two layers; each matrix has one of the kinds."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(kinds), (2, groups))
    return [[rows_of(rng, kinds, [one] * width, size) for one in layer] for layer in chosen]


@given(
    rows=counts,
    padding=st.integers(0, 3),
    width=st.sampled_from((1, COLUMNS, 2 * COLUMNS + 3)),
    size=st.sampled_from((1, 24, 37)),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=2),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
@example([0, 0], 1, 1, 1, [KINDS[0]], jnp.float32, 0)  # nobody has a row
@example([0, 0, 2 * MIN_TOKENS, 0], 0, COLUMNS, 3000, [KINDS[1]], jnp.float32, 0)
def test_any_groups(
    rows: list[int], padding: int, width: int, size: int, kinds: list[Kind], dtype: Any, seed: int
) -> None:
    x = random_x(sum(rows) + padding, size)
    x[sum(rows) :] = np.nan
    layers = random_layers(len(rows), width, size, tuple(kinds), seed)
    panels, places, held = of_layers(layers, tuple(kinds))
    starts = np.cumsum([0, *rows]).astype(np.int32)
    options: dict[str, Any] = {"kinds": held, "width": width, "dtype": dtype}
    found = np.asarray(grouped(x, panels, places, starts, **options))
    for group, matrix in enumerate(layers[1]):
        here = slice(starts[group], starts[group + 1])
        np.testing.assert_array_equal(found[here], products(x[here], matrix, tuple(kinds), dtype))
    assert not found[sum(rows) :].any()


def silu(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(gate / (1 + np.exp(-gate)) * up)


@pytest.mark.parametrize("kinds", [KINDS[:1], KINDS[1:2], KINDS[4:5], KINDS[9:10], KINDS[3:5]])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(
    ("tokens", "width"), [(1, 5), (ROWS + 5, 2 * COLUMNS + 3), (2, PANEL_CHUNKS * COLUMNS + 40)]
)
def test_the_gate_gates_the_plain_products(
    tokens: int, width: int, with_bias: bool, kinds: tuple[Kind, ...]
) -> None:
    rng, size = np.random.default_rng(0), 70
    chosen = [0] * width + [len(kinds) - 1] * width
    stack = [rows_of(rng, kinds, chosen, size) for _ in range(2)]
    x, bias = 0.05 * random_x(tokens, size), random_x(1, 2 * width)[0] if with_bias else None
    panels, places, held = packed(stack, kinds, parts=2)
    options: dict[str, Any] = {"kinds": held, "width": width, "dtype": jnp.bfloat16}
    found = np.asarray(gated(x, panels, places, bias, activation="silu", **options))
    halves = [products(x, half, kinds, jnp.bfloat16) for half in np.split(stack[-1], 2)]
    gate, up = np.split(np.concatenate(halves, 1) + (0 if bias is None else bias), 2, axis=1)
    np.testing.assert_allclose(found, silu(gate, up), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_its_own(activation: str) -> None:
    rows = rows_of(np.random.default_rng(0), KINDS[:1], [0, 0], 16)
    rows["codes"], rows["scales"] = 9, 1
    panels, places, held = packed([rows], KINDS[:1], parts=2)
    options: dict[str, Any] = {"kinds": held, "width": 1, "dtype": jnp.float32}
    found = gated(np.eye(1, 16), panels, places, None, activation=activation, **options)
    expected = {"silu": 0.7310586, "gelu": 0.8413447, "gelu_tanh": 0.8411920}
    expected |= {"relu": 1.0, "relu2": 1.0, "clipped_swiglu": 2 / (1 + np.exp(-1.702))}
    np.testing.assert_allclose(found, expected[activation], rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_groups_with_their_gate(dtype: Any) -> None:
    rows, width, size = [3, 0, ROWS + 1, 1], COLUMNS + 5, 40
    kinds = (KINDS[0], KINDS[8])
    layers = random_layers(len(rows), 2 * width, size, kinds, 0)
    panels, places, held = of_layers(layers, kinds, parts=2)
    x, bias = 0.02 * random_x(sum(rows) + 2, size), random_x(len(rows), 2 * width)
    starts = np.cumsum([0, *rows]).astype(np.int32)
    options: dict[str, Any] = {"kinds": held, "width": width, "dtype": dtype}
    found = np.asarray(grouped_gated(x, panels, places, bias, starts, out_dtype=dtype, **options))
    assert found.dtype == dtype and not found[sum(rows) :].any()
    eps = float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    for group, matrix in enumerate(layers[1]):
        here = slice(starts[group], starts[group + 1])
        sums = products(x[here], matrix, kinds, dtype) + bias[group]
        expected = silu(*np.split(sums, 2, axis=1))
        np.testing.assert_allclose(found[here].astype(np.float32), expected, 1e-5 + eps, 1e-6)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[1]])
def test_a_gated_row_is_the_same_whatever_is_beside_it(kind: Kind) -> None:
    rows = rows_of(np.random.default_rng(0), (kind,), [0] * 154, 600)
    panels, places, held = packed([rows], (kind,), parts=2)
    options: dict[str, Any] = {"kinds": held, "width": 77, "dtype": jnp.bfloat16}
    run = partial(gated, activation="silu", **options)
    x = random_x(150, 600)
    whole = np.asarray(run(x, panels, places, None))
    for start, count in [(0, 1), (7, 4), (20, 9), (4, 66)]:
        some = np.asarray(run(x[start : start + count], panels, places, None))
        np.testing.assert_array_equal(some, whole[start : start + count])


def test_panels_of_another_shape_are_refused() -> None:
    rows = rows_of(np.random.default_rng(0), KINDS[:1], [0] * (2 * COLUMNS + 2), 40)
    panels, places, held = packed([rows], KINDS[:1])  # a panel less than in two parts
    options: dict[str, Any] = {"kinds": held, "width": COLUMNS + 1, "dtype": jnp.float32}
    with pytest.raises(ValueError, match=r"must be \(1, 4, 2\), got \(1, 3, 2\)"):
        gated(np.ones((2, 40)), panels, places, None, activation="silu", **options)
    with pytest.raises(ValueError, match=r"of 2 groups must be \[2, \.\.\.\] or \[layers, 2, "):
        options |= {"width": 2 * COLUMNS + 2}
        grouped(np.ones((2, 40)), panels, places, np.int32([0, 1, 2]), **options)
