"""AWQ: worked by hand, as another reader unpacks it, and for codes at random."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.quantization import awq
from tests.support.quantised import assert_same_bits, golden, normal

seeds = st.integers(0, 2**32 - 1)


def test_nibbles_by_hand() -> None:
    """In each word the even outputs come before the odd ones, from the lowest nibble."""
    words = np.array([[0x7531_6420, 0x0000_000F]], np.int32)
    assert awq.unpack(words)[0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 15, 0, 0, 0, 0, 0, 0, 0]
    assert awq.pack(np.arange(8, dtype=np.uint8)[None]).tolist() == [[0x7531_6420]]


def test_groups_have_zero_points_and_scales_of_their_own() -> None:
    """Four inputs in two groups, whose first output has the zero points 1 and 2."""
    scales = np.ones((2, 8), np.float16)
    scales[:, 0] = 0.5, 4.0
    codes, zeros = np.array([[3], [4], [5], [6]], np.int32), np.array([[1], [2]], np.int32)
    weights = awq.decode(awq.Tensors(codes, zeros, scales))
    assert weights[0].tolist() == [1.0, 1.5, 12.0, 16.0]


def test_decodes_as_compressed_tensors_does() -> None:
    arrays = golden("awq")
    weight = arrays.pop("weight")
    assert_same_bits(awq.decode(awq.Tensors(**arrays)), weight)


def test_rounds_half_to_even() -> None:
    x = np.tile(np.array([-2.0, 13.0, 0.5, 1.5, 2.5, 3.5], np.float32), (8, 1))
    weights = awq.decode(awq.quantise(x, 6))
    assert weights[5].tolist() == [-2.0, 13.0, 0.0, 2.0, 2.0, 4.0]


def test_shapes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="64 inputs: they must be a multiple of group_size 48"):
        awq.quantise(normal(0, 8, 64), 48)
    with pytest.raises(ValueError, match="12 outputs: they must be a multiple of 8"):
        awq.quantise(normal(0, 12, 64), 32)


@given(seed=seeds)
def test_unpack_is_the_opposite_of_pack(seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 16, (3, 24), np.uint8)
    np.testing.assert_array_equal(awq.unpack(awq.pack(codes)), codes)


@given(seed=seeds)
def test_a_matrix_is_within_half_a_step(seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(16, 64)).astype(np.float32)
    tensors = awq.quantise(x, 32)
    half = np.repeat(tensors.scales.astype(np.float32), 32, axis=0).T / 2
    assert (np.abs(awq.decode(tensors) - x) <= half + 2e-3 * np.abs(x).max()).all()
