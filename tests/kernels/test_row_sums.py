"""Sums over rows on a CPU without kernels: right, and the same bits for any number of rows."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.operations.equal_bits import PARTS, row_sums
from jax_engine.operations.xla import head_norm
from tests.support.optimised import OPTIMISED

ROWS = 256
SIZES = (1, 2, PARTS, PARTS + 1, 64, 65, 101, 1000)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape[-1]).standard_normal(shape).astype(np.float32)


def differing(function: Callable[[jax.Array], jax.Array], size: int) -> int:
    """How many rows of a size have another result alone, or beside few others, than in ROWS."""
    x, run = numbers(ROWS, size), jax.jit(function, compiler_options=OPTIMISED)
    whole = np.asarray(run(x))
    return sum(
        int((np.asarray(run(x[at : at + rows])) != whole[at : at + rows]).any(axis=-1).sum())
        for rows in (1, 3, 16)
        for at in range(0, ROWS - rows, rows)
    )


@pytest.mark.parametrize("size", SIZES)
def test_sums_are_right(size: int) -> None:
    for shape in ((3, size), (2, 5, size)):
        x = numbers(*shape)
        found = row_sums(jnp.asarray(x))
        assert found.shape == (*shape[:-1], 1)
        np.testing.assert_allclose(found, x.astype(np.float64).sum(-1, keepdims=True), atol=1e-4)


@pytest.mark.slow
def test_bits_depend_on_the_row_alone() -> None:
    for size in SIZES:
        assert differing(row_sums, size) == 0, size


@pytest.mark.slow
def test_products_stay_out_of_the_sums_that_use_them() -> None:
    """In one loop, some would be rounded once and others twice, by the number of rows."""
    for size in (5, 65, 101):
        scale, rows = jnp.asarray(numbers(1, size)), jnp.int32(ROWS)

        def norm(x: jax.Array, scale: Any = scale, rows: Any = rows) -> jax.Array:
            heads = x[:, None]
            return head_norm(heads, scale, scale, rows, kind="layer", whole=False, eps=1e-5)[:, 0]

        assert differing(norm, size) == 0, size


def test_xla_alone_adds_by_the_shape() -> None:
    """Otherwise the test above would prove nothing."""
    assert sum(differing(lambda x: jnp.sum(x, axis=-1, keepdims=True), size) for size in SIZES) > 0
