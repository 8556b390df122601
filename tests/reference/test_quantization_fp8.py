"""FP8: worked by hand, as compressed-tensors does it, and numbers at random."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.quantization import fp8
from reference.quantization.small_floats import E4M3
from reference.quantization.steps import spread
from tests.support.quantised import assert_same_bits, golden, normal

seeds = st.integers(0, 2**32 - 1)
BLOCKS = {"fp8_channel": (1, 64), "fp8_block": (12, 48)}
ONE, TWO = 0x38, 0x40


def test_blocks_have_scales_of_their_own() -> None:
    """Blocks of two rows and three columns on a matrix of 3 x 4."""
    scale = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    weights = fp8.decode(fp8.Tensors(np.full((3, 4), TWO, np.uint8), scale, (2, 3)))
    assert weights.tolist() == [[2, 2, 2, 4], [2, 2, 2, 4], [6, 6, 6, 8]]


def test_one_scale_and_one_for_each_output() -> None:
    weight = np.array([[ONE, TWO], [TWO, ONE]], np.uint8)
    whole = fp8.decode(fp8.Tensors(weight, np.array([[3.0]], np.float32), (2, 2)))
    assert whole.tolist() == [[3, 6], [6, 3]]
    rows = fp8.decode(fp8.Tensors(weight, np.array([[3.0], [5.0]], np.float32), (1, 2)))
    assert rows.tolist() == [[3, 6], [10, 5]]


def test_scales_may_be_powers_of_two_in_a_byte() -> None:
    weight, scale = np.array([[ONE, TWO]], np.uint8), np.array([[126]], np.uint8)
    assert fp8.decode(fp8.Tensors(weight, scale, (128, 128))).tolist() == [[0.5, 1.0]]


@pytest.mark.parametrize("case", BLOCKS)
def test_decodes_as_compressed_tensors_does(case: str) -> None:
    arrays = golden(case)
    tensors = fp8.Tensors(arrays["codes"], arrays["scale"], BLOCKS[case])
    assert_same_bits(fp8.decode(tensors), arrays["weight"])


def test_the_largest_number_of_a_block_becomes_the_largest_there_is() -> None:
    x = np.array([[448.0, 17.0, 0.0, 0.0], [-19.0, 1.0, 0.0, 896.0]], np.float32)
    tensors = fp8.quantise(x, (2, 2))
    assert tensors.scale.tolist() == [[1.0, 2.0]]
    assert fp8.decode(tensors).tolist() == [[448, 16, 0, 0], [-20, 1, 0, 896]]  # 17, 19: ties


def test_a_block_of_zeros_has_the_scale_one() -> None:
    tensors = fp8.quantise(np.zeros((2, 2), np.float32), (2, 2))
    assert tensors.scale.tolist() == [[1.0]]
    assert not fp8.decode(tensors).any()


@given(seed=seeds, block=st.sampled_from([(5, 40), (1, 40), (2, 16), (128, 128)]))
def test_each_number_is_the_nearest_one(seed: int, block: tuple[int, int]) -> None:
    """A step is an eighth of the power of two below; half of it, and float32's own rounding."""
    x = normal(seed, 5, 40)
    tensors = fp8.quantise(x, block)
    scale = spread(tensors.scale, (5, 40), block)
    half = np.maximum(2.0 ** np.floor(np.log2(np.maximum(np.abs(x) / scale, 2**-6))) / 16, 2**-10)
    assert (np.abs(fp8.decode(tensors) - x) <= scale * half * 1.001).all()
    assert np.isfinite(E4M3[tensors.weight]).all()


@given(seed=seeds)
def test_codes_come_back(seed: int) -> None:
    """Quantised once more, if the largest number is in each block."""
    codes = np.random.default_rng(seed).integers(0, 127, (4, 8), np.uint8)
    codes[::2, ::4] = 126
    tensors = fp8.Tensors(codes, np.full((2, 2), 2.0**-5, np.float32), (2, 4))
    again = fp8.quantise(fp8.decode(tensors), (2, 4))
    np.testing.assert_array_equal(again.weight, codes)
    np.testing.assert_array_equal(again.scale, tensors.scale)
