"""Products whose sums are a tree of leaves: what a device computes of some leaves adds up to it."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpu_kernels.linear.float_weights import FloatWeights
from cpu_kernels.linear.linear import linear
from cpu_kernels.linear.tiles import MOST_LEAVES, PART
from cpu_kernels.simd.micro_kernel import COLUMNS, ROWS
from tests.kernels.test_linear import DTYPES, exact, numbers, panels_of


@partial(jax.jit, static_argnames=("width", "leaves"))
def product(x: Any, panels: Any, width: int, leaves: int) -> jax.Array:
    return linear(x, FloatWeights(panels, leaves), width=width)


def times(x: Any, weight: Any, leaves: int) -> np.ndarray:
    return np.asarray(product(x, panels_of(weight), len(weight), leaves))


def added(parts: list[np.ndarray]) -> np.ndarray:
    while len(parts) > 1:
        parts = [one + other for one, other in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


@given(
    tokens=st.integers(1, 2 * ROWS + 3),
    out=st.integers(1, 2 * COLUMNS + 3),
    each=st.sampled_from([2, 6, 18, 64, PART // 4, 2 * PART + 2]),
    leaves=st.sampled_from([2, 4, 8]),
    devices=st.sampled_from([1, 2, 4, 8]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
)
def test_devices_with_some_leaves_each_add_up_to_the_same_bits(
    tokens: int, out: int, each: int, leaves: int, devices: int, dtype: Any, seed: int
) -> None:
    """I52, for any number of devices that divides the leaves; and the sum is right."""
    devices, size = min(devices, leaves), leaves * each
    x, weight = numbers(seed, tokens, size, dtype=dtype), numbers(seed + 1, out, size, dtype=dtype)
    whole = times(x, weight, leaves)
    share, own = size // devices, leaves // devices
    cuts = [slice(rank * share, (rank + 1) * share) for rank in range(devices)]
    parts = [times(x[:, cut], weight[:, cut], own) for cut in cuts]
    np.testing.assert_array_equal(whole, added(parts))
    tolerance = 8 * np.finfo(np.float32).eps * (np.sqrt(size) + 8)
    bound = tolerance * np.sqrt(size) + tolerance
    np.testing.assert_allclose(whole, exact(x, weight), rtol=0, atol=bound)


def test_a_row_s_bits_do_not_depend_on_its_company() -> None:
    x, weight = numbers(0, 2 * ROWS + 1, 8 * 50), numbers(1, COLUMNS + 5, 8 * 50)
    together = times(x, weight, MOST_LEAVES)
    alone = np.concatenate([times(row[None], weight, MOST_LEAVES) for row in x])
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize(("leaves", "size"), [(3, 12), (16, 320), (4, 12), (8, 8)])
def test_rows_that_cannot_be_cut_are_refused(leaves: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"got {leaves} of {size} numbers"):
        times(numbers(0, 2, size), numbers(1, 5, size), leaves)
