"""Every weight format against NumPy: products, gated products, rows, and how arrays are cut."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.model_spec import Activation
from jax_engine.operations import formats_for
from jax_engine.operations import table as formats
from jax_engine.weights.dense import Dense, IndexedDense
from jax_engine.weights.format import Matrix, Weight, WeightFormat
from jax_engine.weights.panels import Panels
from tests.weights.int8 import Int8, rounded

CASES = [
    (Dense(), "float32"),
    (Dense(), "bfloat16"),
    (Dense(), "float16"),
    (IndexedDense(), "float32"),
    (IndexedDense(), "bfloat16"),
    (IndexedDense(), "float16"),
    (Panels(), "float32"),
    (Panels(), "bfloat16"),
    (Panels(), "float16"),
    (Int8(), "float32"),
]
cases = pytest.mark.parametrize(
    ("form", "dtype"), CASES, ids=lambda one: getattr(one, "name", None)
)
# A few of each, since every shape is compiled.
tokens_of, sizes = st.sampled_from((1, 13)), st.sampled_from((1, 7, 33))
# The activations as their papers define them, and the gates made of them.
ACTIVATIONS: dict[Activation, Any] = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
}
GATES: dict[Activation, Any] = {
    name: lambda gate, up, function=function: function(gate) * up
    for name, function in ACTIVATIONS.items()
    if name != "relu2"
}
GATES["clipped_swiglu"] = lambda gate, up: (
    np.minimum(gate, 7) / (1 + np.exp(-1.702 * np.minimum(gate, 7))) * (np.clip(up, -7, 7) + 1)
)
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}


def numbers(seed: int, *shape: int, dtype: str) -> np.ndarray:
    """Random numbers; powers of two times small integers are exact in every format."""
    drawn = np.random.default_rng(seed).integers(-100, 101, shape) / 64
    return drawn.astype(jnp.dtype(dtype))


def held(form: WeightFormat, values: np.ndarray, *, gated: bool = False) -> Weight:
    """A weight of these numbers [*stack, out, in], packed into memory that held other numbers."""
    matrix = Matrix(values.shape, jnp.dtype(values.dtype), gated)
    arrays = {name: np.full(a.shape, 77, a.dtype) for name, a in form.arrays(matrix).items()}
    form.pack(values, arrays, matrix)
    return Weight({name: jnp.asarray(a) for name, a in arrays.items()}, matrix=matrix, format=form)


def one_layer(weight: Weight, layer: int) -> Weight:
    """What a layer receives inside the scan."""
    if weight.format.indexed:
        return weight
    arrays = {name: array[layer] for name, array in weight.arrays.items()}
    return Weight(arrays, matrix=weight.matrix, format=weight.format)


def close(found: Any, expected: np.ndarray, dtype: str) -> None:
    tolerance = TOLERANCE[dtype]
    scale = max(float(np.abs(expected).max(initial=0)), 1.0)
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, atol=tolerance * scale)


@cases
@given(st.sampled_from((1, 3)), tokens_of, sizes, sizes, st.data())
def test_products_of_any_shape(
    form: WeightFormat, dtype: str, layers: int, tokens: int, rows: int, size: int, data: Any
) -> None:
    """The weight is a layer of a stack. Rows beyond `num_rows` are finite."""
    layer = data.draw(st.integers(0, layers - 1))
    wanted = data.draw(st.integers(0, tokens))
    values = numbers(layer, layers, rows, size, dtype=dtype)
    if isinstance(form, Int8):
        values = rounded(values)
    x = numbers(7, tokens, size, dtype=dtype)
    weight = one_layer(held(form, values), layer)
    expected = x.astype(np.float64) @ values[layer].astype(np.float64).T
    out_dtype = form.result_dtype(jnp.dtype(dtype))
    out = weight.format.matmul(
        jnp.asarray(x), weight, jnp.int32(layer), jnp.int32(wanted), out_dtype=out_dtype
    )
    assert out.dtype == out_dtype and out.shape == expected.shape
    close(np.asarray(out, np.float64)[:wanted], expected[:wanted], dtype)
    assert np.isfinite(np.asarray(out, np.float32)).all()
    logits = weight.format.matmul(
        jnp.asarray(x), weight, jnp.int32(layer), None, out_dtype=jnp.dtype(jnp.float32)
    )
    close(logits, expected, dtype)


@pytest.mark.parametrize(("form", "dtype"), [one for one in CASES if one[0] != Int8()])
@given(st.sampled_from((1, 3)), tokens_of, sizes, sizes, st.data())
def test_batched_products(
    form: WeightFormat, dtype: str, heads: int, tokens: int, rows: int, size: int, data: Any
) -> None:
    """A matrix for each head, of a layer of two; rows beyond `num_rows` are finite."""
    layer, wanted = data.draw(st.integers(0, 1)), data.draw(st.integers(0, tokens))
    values = numbers(3, 2, heads, rows, size, dtype=dtype)
    x = numbers(7, heads, tokens, size, dtype=dtype)
    weight = one_layer(held(form, values), layer)
    expected = np.einsum("hti,hoi->hto", x.astype(np.float64), values[layer].astype(np.float64))
    found = weight.format.batched_matmul(
        jnp.asarray(x), weight, jnp.int32(layer), jnp.int32(wanted)
    )
    assert found.dtype == form.result_dtype(jnp.dtype(dtype)) and found.shape == expected.shape
    close(np.asarray(found, np.float64)[:, :wanted], expected[:, :wanted], dtype)
    assert np.isfinite(np.asarray(found, np.float32)).all()


@cases
@given(tokens_of, sizes, sizes, st.booleans(), st.sampled_from(sorted(GATES)))
def test_gated_products(
    form: WeightFormat,
    dtype: str,
    tokens: int,
    width: int,
    size: int,
    with_bias: bool,
    activation: Activation,
) -> None:
    values = numbers(1, 2, 2 * width, size, dtype=dtype)
    if isinstance(form, Int8):
        values = rounded(values)
    x, bias = numbers(7, tokens, size, dtype=dtype), numbers(8, 2 * width, dtype=dtype)
    products = x.astype(np.float64) @ values[1].astype(np.float64).T
    gate, up = np.split(products + with_bias * bias.astype(np.float64), 2, axis=1)
    weight = one_layer(held(form, values, gated=True), 1)
    given_bias = jnp.asarray(bias) if with_bias else None
    out = weight.format.gated_matmul(
        jnp.asarray(x), weight, given_bias, activation, jnp.int32(1), None
    )
    assert out.dtype == dtype
    close(out, GATES[activation](gate, up), dtype)


@pytest.mark.parametrize(
    ("form", "dtype"), [case for case in CASES if not isinstance(case[0], Int8)]
)
@given(
    # A few, since every shape is compiled.
    st.sampled_from([(1, 0, 2), (0, 13, 0), (0, 0, 0)]),
    st.sampled_from((7, 33)),
    st.booleans(),
    st.sampled_from((None, "silu", "clipped_swiglu")),
)
def test_products_by_experts(
    form: WeightFormat,
    dtype: str,
    counts: tuple[int, ...],
    width: int,
    with_bias: bool,
    activation: Activation | None,
) -> None:
    """Each row by its expert's matrix, with a gate or without; two rows of padding are finite."""
    rows, size = width if activation is None else 2 * width, 10
    values = numbers(1, 2, 3, rows, size, dtype=dtype)
    x, bias = numbers(7, sum(counts) + 2, size, dtype=dtype), numbers(8, 3, rows, dtype=dtype)
    expert, real = np.repeat(range(3), counts), slice(0, sum(counts))
    sums = np.einsum("ti,toi->to", x[real], values[1][expert], dtype=np.float64)
    sums += with_bias * bias[expert].astype(np.float64)
    weight = one_layer(held(form, values, gated=activation is not None), 1)
    starts = jnp.asarray(np.cumsum([0, *counts]), jnp.int32)
    given = jnp.asarray(x), jnp.asarray(bias) if with_bias else None
    if activation is None:
        out = weight.format.grouped_matmul(given[0], weight, given[1], starts, jnp.int32(1))
        assert out.dtype == form.result_dtype(jnp.dtype(dtype))
        expected = sums
    else:
        out = weight.format.grouped_gated_matmul(
            given[0], weight, given[1], activation, starts, jnp.int32(1)
        )
        assert out.dtype == dtype
        expected = GATES[activation](*np.split(sums, 2, axis=1))
    close(np.asarray(out, np.float64)[real], expected, dtype)
    assert np.isfinite(np.asarray(out, np.float32)).all()


@cases
@given(tokens_of, sizes, sizes, st.booleans(), st.sampled_from(sorted(ACTIVATIONS)))
def test_activated_products(
    form: WeightFormat,
    dtype: str,
    tokens: int,
    width: int,
    size: int,
    with_bias: bool,
    activation: Activation,
) -> None:
    values = numbers(5, 2, width, size, dtype=dtype)
    if isinstance(form, Int8):
        values = rounded(values)
    x, bias = numbers(7, tokens, size, dtype=dtype), numbers(8, width, dtype=dtype)
    products = x.astype(np.float64) @ values[1].astype(np.float64).T
    weight = one_layer(held(form, values), 1)
    given_bias = jnp.asarray(bias) if with_bias else None
    out = weight.format.activated_matmul(
        jnp.asarray(x), weight, given_bias, activation, jnp.int32(1), None
    )
    assert out.dtype == dtype
    wanted = ACTIVATIONS[activation](products + with_bias * bias.astype(np.float64))
    close(out, wanted, dtype)


@cases
@given(sizes, sizes, st.lists(st.integers(-3, 45), min_size=4, max_size=4))
def test_rows_are_taken_unchanged_and_clipped(
    form: WeightFormat, dtype: str, rows: int, size: int, ids: list[int]
) -> None:
    table = numbers(2, rows, size, dtype=dtype)
    if isinstance(form, Int8):
        table = rounded(table)
    found = form.take_rows(held(form, table), jnp.asarray(ids))
    # A negative number counts from the end in a dense table, as NumPy's do; no token id is one.
    positive = np.asarray(ids) >= 0
    expected = table[np.clip(ids, 0, rows - 1)]
    assert found.dtype == dtype
    np.testing.assert_array_equal(np.asarray(found)[positive], expected[positive])


@cases
@pytest.mark.parametrize("gated", [False, True])
def test_a_stack_may_be_packed_layer_by_layer(form: WeightFormat, dtype: str, gated: bool) -> None:
    values = numbers(3, 3, 2 * 19, 21, dtype=dtype)
    whole = held(form, values, gated=gated)
    for layer in range(3):
        alone = held(form, values[layer], gated=gated)
        for name, array in whole.arrays.items():
            np.testing.assert_array_equal(array[layer], alone.arrays[name])


def test_formats_of_this_device() -> None:
    """Numba's kernels know three dtypes; formats of equal fields are the same to JAX."""
    for name in ("float32", "bfloat16", "float16"):
        assert formats_for(jnp.dtype(name)) == (Panels(), Dense())
    assert hash(Dense()) == hash(Dense()) and Dense() != IndexedDense()


def test_formats_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU then indexes the stack of layers in the product, since XLA would copy each of them."""
    monkeypatch.setattr(formats, "on_numba", lambda dtype: False)
    for name in ("float32", "bfloat16", "float16"):
        assert formats_for(jnp.dtype(name)) == (IndexedDense(), Dense())
