"""W8A8 as weight formats: both have the oracle's products to the bit, and hence each other's."""

from functools import partial
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpu_kernels.linear.w8a8_rows import LEAST, MOST
from jax_engine.errors import WeightsError
from jax_engine.operations import coded_format
from jax_engine.weights import w8a8
from jax_engine.weights.codes import Kind, row_dtype
from jax_engine.weights.dense import Dense, IndexedDense
from jax_engine.weights.format import Matrix, Weight
from jax_engine.weights.panels import Panels
from jax_engine.weights.w8a8 import W8A8, IndexedW8A8Dense, W8A8Dense, W8A8Panels, is_w8a8
from reference.quantization import smoothquant
from tests.kernels.w8a8 import by_groups, by_oracle, numbers, relu_gated, weights

FORMS = (W8A8Panels(), W8A8Dense(), IndexedW8A8Dense())
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
# Tokens, rows and columns. A few, since every shape is compiled.
shapes = st.sampled_from([(1, 33, 7), (13, 7, 33), (13, 1, 1)])
dtypes = st.sampled_from(("float32", "bfloat16"))
seeds = st.integers(0, 99)
FLOAT32 = jnp.dtype(jnp.float32)
PER_ROW = Kind("int8", 1 << 20, activations="int8")


def records(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Rows as the loader hands them over."""
    rows = np.zeros(codes.shape[:-1], row_dtype((PER_ROW,), codes.shape[-1]))
    rows["codes"], rows["scales"] = codes.view(np.uint8), scales[..., None]
    return rows


def held(
    form: W8A8, codes: np.ndarray, scales: np.ndarray, *, gated: bool = False, dtype: Any = FLOAT32
) -> Weight:
    """A weight of these codes, packed from records into memory that held other numbers."""
    matrix = Matrix(codes.shape, dtype, gated)
    arrays = {name: np.full(a.shape, 77, a.dtype) for name, a in form.arrays(matrix).items()}
    form.pack_rows(records(codes, scales), arrays, matrix)
    return Weight({name: jnp.asarray(a) for name, a in arrays.items()}, matrix=matrix, format=form)


@partial(jax.jit, static_argnames=("method", "matrix", "form", "options"))
def _run(
    arrays: Any, given: Any, *, method: str, matrix: Matrix, form: W8A8, options: Any
) -> jax.Array:
    weight = Weight(arrays, matrix=matrix, format=form)
    product = getattr(form, method)
    left_out = {"layer", "num_rows"} & signature(product).parameters.keys() - given.keys()
    found: jax.Array = product(weight=weight, **dict.fromkeys(left_out), **given, **dict(options))
    return found


def run(weight: Weight, method: str, given: dict[str, Any], **options: Any) -> np.ndarray:
    """What a method of a weight's format computes in a compiled step. A shape is compiled once."""
    static: dict[str, Any] = {"matrix": weight.matrix, "form": weight.format}
    named = tuple(sorted(options.items()))
    return np.asarray(_run(dict(weight.arrays), given, method=method, options=named, **static))


def one_layer(weight: Weight, layer: int) -> Weight:
    """What a layer receives inside the scan."""
    if weight.format.indexed:
        return weight
    arrays = {name: array[layer] for name, array in weight.arrays.items()}
    return Weight(arrays, matrix=weight.matrix, format=weight.format)


@forms
@given(shapes, dtypes, seeds)
@example((13, 1, 1), "float32", 0)  # XLA knew that a magnitude is not below 0
def test_products(form: W8A8, shape: tuple[int, int, int], dtype: str, seed: int) -> None:
    """The weight is a layer of a stack. Rows beyond `num_rows` are finite."""
    tokens, rows, size = shape
    layer, wanted = seed % 3, seed % (tokens + 1)
    codes, scales = weights(seed, 3, rows, size)
    x = jnp.asarray(numbers(seed + 1, tokens, size), dtype)
    weight = one_layer(held(form, codes, scales), layer)
    expected = by_oracle(x, codes[layer], scales[layer])
    arrays = {"x": x, "layer": jnp.int32(layer)}
    some = arrays | {"num_rows": jnp.int32(wanted)}
    found = run(weight, "matmul", some, out_dtype=FLOAT32)
    assert form.result_dtype(x.dtype) == FLOAT32 == found.dtype
    np.testing.assert_array_equal(found[:wanted], expected[:wanted])
    assert np.isfinite(found).all()
    rounded = run(weight, "matmul", arrays, out_dtype=jnp.dtype(dtype))
    np.testing.assert_array_equal(rounded, expected.astype(dtype))


@forms
@pytest.mark.parametrize("tokens", [2, 40])
def test_x_is_divided_as_the_oracle_divides(form: W8A8, tokens: int) -> None:
    """Not multiplied by a reciprocal, as XLA would: that rounds otherwise near half a step."""
    x, codes = numbers(0, tokens, 500), np.eye(500, dtype=np.int8)
    weight = held(form, codes, np.ones(500, np.float32))
    found = run(weight, "matmul", {"x": jnp.asarray(x)}, out_dtype=FLOAT32)
    np.testing.assert_array_equal(found, by_oracle(x, codes, np.ones(500, np.float32)))


@forms
@pytest.mark.parametrize("size", [0, 2.0**-149, 2.0**-119, 2.0**-118, 2.0**-100, 1e33])
def test_rows_of_any_size(form: W8A8, size: float) -> None:
    """Those below LEAST are zeros, in every format from the same number on."""
    x = np.array([[1, -0.5, 0.001], [0, 0, 1]], np.float32) * np.float32(size)
    codes, scales = np.array([[1, 2, 3], [100, 90, -128]], np.int8), np.ones(2, np.float32)
    expected = by_oracle(x, codes, scales)
    assert w8a8.LEAST == smoothquant.LEAST == LEAST and w8a8.MOST == MOST
    weight = held(form, codes, scales)
    found = run(weight, "matmul", {"x": jnp.asarray(x)}, out_dtype=FLOAT32)
    np.testing.assert_array_equal(found, expected)


@forms
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_spoils_its_row_alone(form: W8A8, value: float) -> None:
    x, (codes, scales) = numbers(0, 3, 21), weights(1, 7, 21)
    expected = by_oracle(x, codes, scales)
    x[1, 5], expected[1] = value, np.nan
    weight = held(form, codes, scales)
    found = run(weight, "matmul", {"x": jnp.asarray(x)}, out_dtype=FLOAT32)
    np.testing.assert_array_equal(found, expected)


@forms
@given(shapes, st.booleans(), dtypes, seeds)
def test_gated_products(
    form: W8A8, shape: tuple[int, int, int], with_bias: bool, dtype: str, seed: int
) -> None:
    tokens, width, size = shape
    codes, scales = weights(seed, 2, 2 * width, size)
    x, bias = jnp.asarray(numbers(seed + 1, tokens, size), dtype), numbers(8, 1, 2 * width)[0]
    weight = one_layer(held(form, codes, scales, gated=True), 1)
    added = jnp.asarray(bias) if with_bias else None
    arrays = {"x": x, "bias": added, "layer": jnp.int32(1)}
    found = run(weight, "gated_matmul", arrays, activation="relu")
    expected = relu_gated(by_oracle(x, codes[1], scales[1]), bias if with_bias else None)
    np.testing.assert_array_equal(found, expected.astype(dtype))


@forms
@given(st.sampled_from([(1, 0, 12), (0, 13, 0), (0, 0, 0), (2, 0, 3)]), st.booleans(), seeds)
@example((1, 0, 12), True, 0)
@example((1, 0, 12), False, 0)
def test_products_by_experts(form: W8A8, counts: tuple[int, ...], gated: bool, seed: int) -> None:
    """With a gate and a bias, or without; two rows of padding or more are finite."""
    rows, size, real = 33 * (1 + gated), 10, sum(counts)
    codes, scales = weights(seed, 2, 3, rows, size)
    x, bias = numbers(seed + 1, 15, size), numbers(8, 3, rows)
    weight = one_layer(held(form, codes, scales, gated=gated), 1)
    starts = jnp.asarray(np.cumsum([0, *counts]), jnp.int32)
    arrays = {"x": jnp.asarray(x), "bias": jnp.asarray(bias) if gated else None}
    arrays |= {"starts": starts, "layer": jnp.int32(1)}
    expected = by_groups(x, codes[1], scales[1], list(counts))[:real]
    if gated:
        expected = expected + np.repeat(bias, counts, axis=0)
        found = run(weight, "grouped_gated_matmul", arrays, activation="relu")
        expected = relu_gated(expected)
    else:
        found = run(weight, "grouped_matmul", arrays)
    np.testing.assert_array_equal(found[:real], expected)
    assert np.isfinite(found).all()


@forms
@pytest.mark.parametrize(("heads", "tokens", "wanted"), [(1, 1, 1), (3, 13, 13), (3, 13, 5)])
@pytest.mark.parametrize("layer", [0, 1])
def test_batched_products(form: W8A8, heads: int, tokens: int, wanted: int, layer: int) -> None:
    codes, scales = weights(3, 2, heads, 33, 10)
    x = numbers(7, heads, tokens, 10)
    weight = one_layer(held(form, codes, scales), layer)
    arrays = {"x": jnp.asarray(x), "layer": jnp.int32(layer), "num_rows": jnp.int32(wanted)}
    found = run(weight, "batched_matmul", arrays)
    for head in range(heads):
        expected = by_oracle(x[head], codes[layer, head], scales[layer, head])
        np.testing.assert_array_equal(found[head][:wanted], expected[:wanted])


@forms
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 33])
@given(st.lists(st.integers(0, 99), min_size=4, max_size=4))
@example([32, 33, 40, 99])
def test_rows_are_taken_and_clipped(form: W8A8, dtype: str, rows: int, ids: list[int]) -> None:
    codes, scales = weights(2, rows, 7)
    weight = held(form, codes, scales, dtype=jnp.dtype(dtype))
    expected = (codes * scales[:, None])[np.minimum(ids, rows - 1)].astype(dtype)
    found = run(weight, "take_rows", {"ids": jnp.asarray(ids)})
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


@forms
@pytest.mark.parametrize("gated", [False, True])
def test_numbers_are_rounded_as_the_oracle_rounds(form: W8A8, gated: bool) -> None:
    """The checkpoint is plain, and a row is all zeros. Layers may be packed one by one."""
    values = numbers(3, 2, 46, 21)
    values[1, 5] = 0
    matrix = Matrix(values.shape, FLOAT32, gated)
    arrays = {name: np.full(a.shape, 77, a.dtype) for name, a in form.arrays(matrix).items()}
    for layer in range(2):
        one = {name: array[layer] for name, array in arrays.items()}
        form.pack(values[layer], one, Matrix(values.shape[1:], FLOAT32, gated))
    every = [smoothquant.quantise(layer) for layer in values]
    codes, scales = (np.stack([one[part] for one in every]) for part in range(2))
    expected = held(form, codes, scales[..., 0], gated=gated).arrays
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name])


@forms
def test_rows_that_are_too_long_are_refused(form: W8A8) -> None:
    """Before anything is allocated."""
    with pytest.raises(WeightsError, match=r"rows of 132105 numbers.* at most 132104"):
        form.arrays(Matrix((7, MOST + 1), FLOAT32))
    assert form.arrays(Matrix((7, MOST), FLOAT32))


def test_which_kinds_of_rows_these_formats_hold() -> None:
    assert is_w8a8(PER_ROW, 576) and is_w8a8(PER_ROW._replace(group=576), 576)
    others: list[dict[str, Any]] = [
        {"group": 128},
        {"code": "float8_e4m3fn"},
        {"minimums": True},
        {"outer": 256},
        {"activations": None},
        {"activations": "float8_e4m3fn"},
    ]
    for change in others:
        assert not is_w8a8(PER_ROW._replace(**change), 576)


def test_the_format_follows_that_of_plain_numbers() -> None:
    """Columns in another order have another format, and so have rows of two kinds."""
    matrix, part = Matrix((6, 40), FLOAT32), [(PER_ROW, 6)]
    chosen = [
        coded_format((PER_ROW,), [part], matrix, plain, ordered=False)
        for plain in (Panels(), Dense(), IndexedDense())
    ]
    assert chosen == list(FORMS)
    others = (PER_ROW, PER_ROW._replace(activations=None))
    for kinds, ordered in [((PER_ROW,), True), (others, False)]:
        found = coded_format(kinds, [part], matrix, Dense(), ordered=ordered)
        assert not isinstance(found, W8A8)
