"""What the XLA twin promises beyond what any kernel must."""

import numpy as np
import pytest
from hypothesis import given

from tests.kernels.cases import Lengths, Sizes, lengths, make_case, seeds
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
