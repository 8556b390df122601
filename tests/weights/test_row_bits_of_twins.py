"""XLA's twins of the kernels for a CPU: a row's bits are the same for any number of rows too."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.operations import xla
from jax_engine.weights.coded import CodedByRows
from jax_engine.weights.dense import IndexedDense
from jax_engine.weights.transforms import Tensor
from pallas_kernels import grouped_product
from tests.support.optimised import OPTIMISED
from tests.weights.coded_rows import KINDS, RowsSource, random_rows
from tests.weights.test_coded import form_of, loaded
from tests.weights.test_formats import held, one_layer
from tests.weights.test_row_bits import numbers

ROWS = 256
COUNTS = (1, 2, 3, 5, 8, 9, 16, 17, 33, 64)
FLOAT32 = jnp.dtype(jnp.float32)


def check(functions: dict[str, Callable[[jax.Array], jax.Array]], x: np.ndarray) -> None:
    """The first rows alone, and rows from the middle; each function is compiled for itself."""
    for name, function in functions.items():
        run = jax.jit(function, compiler_options=OPTIMISED)
        whole = np.asarray(run(jnp.asarray(x)), np.float32)
        for count in COUNTS:
            for start in (0, 100):
                rows = slice(start, start + count)
                found = np.asarray(run(jnp.asarray(x[rows])), np.float32)
                np.testing.assert_array_equal(found, whole[rows], f"{name}, {count} from {start}")


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 64, 101, 1000])
def test_norms_and_softmaxes(size: int) -> None:
    """XLA's own sums have other bits wherever there are fewer than 4,096 numbers."""
    x, scale, rows = numbers(ROWS, size), jnp.asarray(numbers(size)), jnp.int32(ROWS)
    norms = {
        "rms": lambda x: xla.add_rms_norm(x, x, scale, rows, eps=1e-5)[0],
        "layer": lambda x: xla.layer_norm(x, scale, scale, rows, eps=1e-5, dtype=FLOAT32),
    }
    check(norms, x)
    check({"softmax": xla.softmax, "logsumexp": xla.logsumexp}, 3 * x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heads", "dim", "whole"), [(3, 128, False), (4, 16, False), (1, 5, False), (2, 64, True)]
)
def test_norms_of_heads(heads: int, dim: int, whole: bool) -> None:
    x, scale = numbers(ROWS, heads, dim), jnp.asarray(numbers(heads, dim))

    def norm(kind: Any) -> Callable[[jax.Array], jax.Array]:
        form: dict[str, Any] = {"kind": kind, "whole": whole, "eps": 1e-5}
        return lambda x: xla.head_norm(x, scale, scale, jnp.int32(ROWS), **form)

    check({"rms": norm("rms"), "layer": norm("layer")}, x)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("rows", "size"), [(1, 64), (2, 3), (33, 576)])
def test_products(rows: int, size: int, dtype: str) -> None:
    """Those of a shared expert's gate have a single column, a router's a few."""
    weight = one_layer(held(IndexedDense(), numbers(1, rows, size, dtype=dtype)), 0)
    x = numbers(ROWS, size, dtype=dtype)
    check(
        {
            "product": lambda x: weight.format.matmul(
                x, weight, jnp.int32(0), None, out_dtype=FLOAT32
            )
        },
        x,
    )


@pytest.mark.parametrize("kind", range(0, len(KINDS), 4))
def test_products_of_codes(kind: int) -> None:
    rows = 1 if kind else 64
    source = RowsSource({"w": random_rows((rows,), 256, KINDS, {kind}, 3)}, KINDS)
    form = form_of(source, IndexedDense(), Tensor("w"), (rows, 256))
    assert isinstance(form, CodedByRows)
    weight = loaded(source, Tensor("w"), form, (rows, 256))
    check(
        {"product": lambda x: weight.format.matmul(x, weight, None, None, out_dtype=FLOAT32)},
        numbers(ROWS, 256),
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("groups", "rows", "size"), [(5, 32, 48)])
@pytest.mark.slow
def test_products_of_experts(groups: int, rows: int, size: int, dtype: str) -> None:
    """Rows lie at other places of their group, and groups begin elsewhere."""
    weights = jnp.asarray(numbers(groups, rows, size, dtype=dtype))
    x = numbers(ROWS, size, dtype=dtype)
    chosen = np.random.default_rng(1).integers(0, groups, ROWS)
    run = jax.jit(lambda x, starts: grouped_product(x, weights, starts, dtype=FLOAT32))

    def products(these: slice) -> np.ndarray:
        order = np.argsort(chosen[these], kind="stable")
        starts = np.searchsorted(chosen[these][order], np.arange(groups + 1)).astype(np.int32)
        out = np.empty((len(order), rows), np.float32)
        out[order] = np.asarray(run(x[these][order], starts))
        return out

    whole = products(slice(0, ROWS))
    for count in COUNTS:
        for start in (0, 100):
            these = slice(start, start + count)
            np.testing.assert_array_equal(products(these), whole[these], f"{count} from {start}")
