"""Products of rows in groups for GPUs, and their XLA twin, against NumPy in float64."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax.experimental.pallas.mosaic_gpu import InterpretGPUParams, force_gpu_interpret_mode

from pallas_kernels import grouped_product
from pallas_kernels.device import interpreting
from pallas_kernels.mosaic.grouped_product import ALIGNMENT, DEPTH, ROWS, STAGES, tiles_of

BACKENDS = ("xla", "mosaic")
ROWS_OF_X, GROUPS = ROWS + 2 * ALIGNMENT, 3  # one shape for all examples, since each is compiled


def numbers(seed: int, *shape: int, dtype: Any = jnp.bfloat16) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


@partial(jax.jit, static_argnames="backend")
def product(x: Any, weights: Any, starts: Any, backend: str) -> jax.Array:
    return grouped_product(x, weights, starts, dtype=x.dtype, backend=backend)


tiles = jax.jit(tiles_of, static_argnums=1)


def check(counts: list[int], x: Any, weights: Any, backend: str) -> None:
    """Each group's rows, and zeros for the rest."""
    starts = np.cumsum([0, *counts]).astype(np.int32)
    expected = np.zeros((len(x), weights.shape[1]))
    for group, weight in enumerate(np.asarray(weights, np.float64)):
        here = slice(starts[group], starts[group + 1])
        expected[here] = np.asarray(x, np.float64)[here] @ weight.T
    found = np.asarray(product(x, weights, starts, backend), np.float64)
    # Half a unit of bfloat16's last digit, and float32's rounding on the way.
    room = 2**-8 * np.abs(expected) + 1e-5 * x.shape[1]
    assert (np.abs(found - expected) <= room).all()


@pytest.mark.parametrize("backend", BACKENDS)
@given(st.lists(st.integers(0, ROWS_OF_X), min_size=GROUPS, max_size=GROUPS), st.integers(0, 2**24))
@example([0, 0, 0], 0)  # nobody has a row
@example([0, ROWS_OF_X, 0], 0)  # one has them all
@example([ALIGNMENT - 1, ROWS, 1], 0)  # as many rows as a tile, which begin within one
def test_any_groups(backend: str, counts: list[int], seed: int) -> None:
    ends = np.minimum(np.cumsum(counts), ROWS_OF_X)
    x, weights = numbers(seed, ROWS_OF_X, DEPTH), numbers(seed + 1, GROUPS, 64, DEPTH)
    check(np.diff(ends, prepend=0).tolist(), x, weights, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_rows_longer_than_the_ring_and_several_columns(backend: str, dtype: Any) -> None:
    size = (2 * STAGES + 1) * DEPTH
    weights = numbers(1, 2, 256, size, dtype=dtype)
    check([3, 7], numbers(0, 11, size, dtype=dtype), weights, backend)


@pytest.mark.skipif(not interpreting(), reason="the interpreter is for the CPU")
@pytest.mark.parametrize("steps", [1, STAGES, STAGES + 2])
def test_i48_no_races(steps: int) -> None:
    """All stages are used again, or not all are used."""
    x, weights = numbers(0, 9, steps * DEPTH), numbers(1, 2, 128, steps * DEPTH)
    with force_gpu_interpret_mode(InterpretGPUParams(detect_races=True, on_race="raise")):
        check([5, 3], x, weights, "mosaic")


@given(st.lists(st.integers(0, 3 * ROWS), min_size=5, max_size=5))
def test_each_row_of_a_group_is_in_one_tile(counts: list[int]) -> None:
    starts = np.cumsum([0, *counts])
    found_tiles = tiles(jnp.asarray(starts, jnp.int32), 15 * ROWS)
    found = [
        (int(weight), row + i)
        for weight, row, first, end in zip(*map(np.asarray, found_tiles), strict=True)
        for i in range(first, end)
    ]
    assert found == [(g, starts[g] + i) for g, count in enumerate(counts) for i in range(count)]
    assert (np.asarray(found_tiles.row) % ALIGNMENT == 0).all()


def test_the_most_tiles_that_may_be_needed() -> None:
    """Two rows at the border of two tiles each take both."""
    counts = [ALIGNMENT - 1, ROWS - ALIGNMENT + 2, ROWS, 1]
    found_tiles = tiles(jnp.asarray(np.cumsum([0, *counts]), jnp.int32), sum(counts))
    assert (np.asarray(found_tiles.end) - np.asarray(found_tiles.first)).sum() == sum(counts)


def test_what_does_not_fit_is_refused() -> None:
    x, starts = jnp.ones((2, 64), jnp.bfloat16), jnp.int32([0, 1, 2])

    def refused(shape: tuple[int, ...], message: str, dtype: Any = jnp.bfloat16) -> None:
        with pytest.raises(ValueError, match=message):
            grouped_product(x, jnp.ones(shape, dtype), starts, dtype=x.dtype, backend="mosaic")

    refused((3, 64, 64), r"expected x \[T, in\], weights \[X, out, in\] and X \+ 1 starts")
    refused((2, 40, 64), r"weights \[40, 64\] \(multiples of 64 and 64 are needed\)")
    refused((2, 64, 64), r"x of bfloat16 with weights of float32", jnp.float32)
