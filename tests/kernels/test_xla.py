"""What the XLA twin promises beyond what any kernel must."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from pallas_kernels import paged_attention
from tests.kernels.cases import Lengths, Sizes, make_case
from tests.kernels.draws import lengths, seeds
from tests.kernels.expected import UNIT_ROUNDOFF, assert_agrees, oracle
from tests.kernels.kernel import Ours

SIZES = Sizes()
xla = Ours("xla", SIZES)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@given(lengths=lengths(SIZES), seed=seeds())
def test_half_precision_is_rounded_once(lengths: Lengths, seed: int, dtype: str) -> None:
    """Weights stay float32, so that rounding the result is the only difference."""
    case = make_case(lengths, seed, SIZES.geometries[0], SIZES).as_dtype(dtype)
    expected, _ = oracle(case, {})
    np.testing.assert_allclose(xla(case, {})[0], expected, rtol=UNIT_ROUNDOFF[dtype], atol=1e-5)


@pytest.mark.parametrize("block_size", [1, 2, 24, 64, 100, 128])
def test_any_block_size(block_size: int) -> None:
    lengths = [(1, 200), (70, 60), (1, 0), (3, 310), (1, 127), (1, 128), (64, 256)]
    case = make_case(lengths, block_size, (block_size, 1, 2, 8), SIZES)
    assert_agrees(xla(case, {}), case, {})


@pytest.mark.parametrize("options", [{}, {"sinks": np.ones(4, np.float32)}], ids=["plain", "sinks"])
def test_a_token_that_sees_nothing_weighs_nothing(options: dict[str, Any]) -> None:
    """A sequence with a token and no context, such as a part of a context that is empty."""
    case = make_case([(1, 20), (1, 0)], 0, SIZES.geometries[0], SIZES)
    lens = case.context_lens.copy()
    lens[1] = 0
    out, lse = xla(replace(case, context_lens=lens), options | {"return_lse": True})
    assert lse is not None
    assert not out[1].any() and np.isneginf(lse[1]).all()
    assert out[0].all() and np.isfinite(lse[0]).all()


def test_a_row_beside_one_with_far_larger_scores() -> None:
    """Eight rows, computed together, do not share their largest score: exp(-800) is 0."""
    rows = 8
    values = jnp.arange(8.0 * rows).reshape(1, 1, rows, 1, 1, 8)
    kv_cache = jnp.concatenate([jnp.ones_like(values), values], axis=1)
    found = paged_attention(
        jnp.zeros((rows, 1, 8)).at[3].set(100.0),
        kv_cache,
        jnp.arange(rows)[:, None],
        jnp.ones(rows, jnp.int32),
        jnp.arange(rows + 1),
        layer=0,
        scale=1.0,
        backend="xla",
    )
    np.testing.assert_array_equal(found[:, 0], values.reshape(rows, 8))
