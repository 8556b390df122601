"""A row's result is the same bits whatever the number of rows beside it, in each operation."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.operations import numba
from jax_engine.weights.dense import Dense, IndexedDense
from jax_engine.weights.format import Weight
from jax_engine.weights.panels import Panels
from jax_engine.weights.transforms import Tensor
from jax_engine.weights.w8a8 import W8A8Panels
from tests.weights import test_w8a8 as w8a8
from tests.weights.coded_rows import KINDS, RowsSource, random_rows
from tests.weights.test_coded import form_of, loaded
from tests.weights.test_formats import ACTIVATIONS, GATES, held, one_layer

ROWS = 70
COUNTS = (1, 2, 3, 5, 12, 13, 16, 33, 64)
FLOAT32 = jnp.dtype(jnp.float32)
# The sizes of a product: an awkward one, one of a single row, one of several panels and chunks.
SIZES = ((33, 7), (1, 64), (100, 700))
HEADS = ((2, 64), (3, 128), (9, 256), (4, 16), (1, 5))


def check(function: Callable[[jax.Array], jax.Array], x: np.ndarray, axis: int = 0) -> None:
    """The first rows alone, and rows from the middle."""
    run = jax.jit(function)
    whole = np.asarray(run(jnp.asarray(x)), np.float32)
    for count in COUNTS:
        for start in (0, ROWS - count):
            rows = (slice(None),) * axis + (slice(start, start + count),)
            found = np.asarray(run(jnp.asarray(x[rows])), np.float32)
            np.testing.assert_array_equal(found, whole[rows], err_msg=f"{count} rows from {start}")


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(jnp.dtype(dtype))


FORMS = [
    (Panels(), "float32"),
    (Panels(), "bfloat16"),
    (Panels(), "float16"),
    (IndexedDense(), "float16"),
    (IndexedDense(), "float32"),
]


@pytest.mark.parametrize(
    ("form", "dtype"), FORMS, ids=lambda one: getattr(one, "__class__", one).__name__
)
@pytest.mark.slow
def test_products(form: Dense | Panels, dtype: str) -> None:
    first = jnp.int32(0)
    for rows, size in SIZES:
        weight = one_layer(held(form, numbers(1, rows, size, dtype=dtype)), 0)
        x = numbers(ROWS, size, dtype=dtype)
        check(
            lambda x, w=weight: w.format.matmul(x, w, first, jnp.int32(len(x)), out_dtype=FLOAT32),
            x,
        )  # type: ignore[misc]
    heads = one_layer(held(form, numbers(1, 3, 40, 24, dtype=dtype)), 0)
    x = numbers(3, ROWS, 24, dtype=dtype)
    check(lambda x: heads.format.batched_matmul(x, heads, first, None), x, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_gates_and_activations(dtype: str) -> None:
    x = numbers(ROWS, 64, dtype=dtype)
    gated = one_layer(held(Panels(), numbers(1, 66, 64, dtype=dtype), gated=True), 0)
    for activation in GATES:
        check(
            lambda x, a=activation: gated.format.gated_matmul(
                x, gated, None, a, jnp.int32(0), None
            ),
            x,
        )  # type: ignore[misc]
    plain = one_layer(held(Panels(), numbers(1, 33, 64, dtype=dtype)), 0)
    for activation in ACTIVATIONS:
        check(
            lambda x, a=activation: plain.format.activated_matmul(
                x, plain, None, a, jnp.int32(0), None
            ),
            x,
        )  # type: ignore[misc]


def coded(kind: int) -> Weight:
    source = RowsSource({"w": random_rows((64,), 256, KINDS, {kind}, 3)}, KINDS)
    form = form_of(source, Panels(), Tensor("w"), (64, 256))
    return loaded(source, Tensor("w"), form, (64, 256))


def eight_bits() -> Weight:
    rng = np.random.default_rng(0)
    codes = rng.integers(-127, 128, (1, 64, 256)).astype(np.int8)
    scales = rng.random((1, 64)).astype(np.float32)
    return one_layer_of(w8a8.held(W8A8Panels(), codes, scales))


def one_layer_of(weight: Weight) -> Weight:
    return w8a8.one_layer(weight, 0)


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_products_of_codes(kind: int) -> None:
    weight = coded(kind)
    check(
        lambda x: weight.format.matmul(x, weight, None, None, out_dtype=FLOAT32), numbers(ROWS, 256)
    )


def test_w8a8() -> None:
    weight = eight_bits()
    check(
        lambda x: weight.format.matmul(x, weight, jnp.int32(0), None, out_dtype=FLOAT32),
        numbers(ROWS, 256),
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("size", [5, 33, 64, 576])
@pytest.mark.slow
def test_norms(size: int, dtype: str) -> None:
    x, scale = numbers(ROWS, size, dtype=dtype), jnp.asarray(numbers(size))
    form: dict[str, Any] = {"eps": 1e-5, "dtype": x.dtype}
    check(lambda x: numba.rms_norm(x, scale, jnp.int32(len(x)), **form), x)
    check(lambda x: numba.layer_norm(x, scale, scale, jnp.int32(len(x)), **form), x)
    check(lambda x: numba.add_rms_norm(x, x, scale, jnp.int32(len(x)), eps=1e-5)[0], x)
    check(lambda x: numba.add_layer_norm(x, x, scale, None, jnp.int32(len(x)), eps=1e-5)[1], x)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("whole", [False, True])
def test_norms_of_heads(kind: Any, whole: bool, dtype: str) -> None:
    for heads, dim in HEADS:
        x, scale = numbers(ROWS, heads, dim, dtype=dtype), jnp.asarray(numbers(heads, dim))
        form: dict[str, Any] = {"kind": kind, "whole": whole, "eps": 1e-5}
        check(lambda x, s=scale, f=form: numba.head_norm(x, s, s, jnp.int32(len(x)), **f), x)  # type: ignore[misc]


@pytest.mark.parametrize("size", [1, 8, 33, 64, 101, 256, 1000, 49152])
@pytest.mark.slow
def test_softmaxes(size: int) -> None:
    x = 3 * numbers(ROWS, size)
    check(numba.softmax, x)
    check(numba.logsumexp, x)
