"""Codes in words, and equal steps."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reference.quantization.bits import pack_planes, pack_stream, unpack_planes, unpack_stream
from reference.quantization.steps import asymmetric, nearest, spread, symmetric
from tests.support.quantised import assert_within_half_a_step, normal

seeds = st.integers(0, 2**32 - 1)
WORD = np.dtype("<i4")


def test_a_code_of_three_bits_crosses_words() -> None:
    """The eleventh code has two bits in the first word and one in the second."""
    codes = np.zeros(12, np.uint8)
    codes[10], codes[11] = 0b101, 0b110
    words = pack_stream(codes, 3, WORD)
    assert words.tolist() == [0b01 << 30, 0b1101]
    assert unpack_stream(words, 3)[:12].tolist() == codes.tolist()


@given(seed=seeds, bits=st.integers(1, 8), count=st.integers(1, 70))
def test_unpack_is_the_opposite_of_pack(seed: int, bits: int, count: int) -> None:
    """A stream restated with Python's integers, which have any number of bits."""
    codes = np.random.default_rng(seed).integers(0, 2**bits, (2, count), np.uint8)
    words = pack_stream(codes, bits, WORD)
    for row, packed in zip(codes.tolist(), words, strict=True):
        number = sum(code << (bits * i) for i, code in enumerate(row))
        assert packed.tobytes() == number.to_bytes(-(-count * bits // 32) * 4, "little")
    np.testing.assert_array_equal(unpack_stream(words, bits)[:, :count], codes)


@pytest.mark.parametrize("bits", [1, 2, 4])
@given(seed=seeds)
def test_planes(bits: int, seed: int) -> None:
    planes = np.random.default_rng(seed).integers(0, 2**bits, (3, 8 // bits, 5), np.uint8)
    data = pack_planes(planes, bits)
    for place in np.ndindex(planes.shape):
        assert data[place[0], place[2]] >> (bits * place[1]) & (2**bits - 1) == planes[place]
    np.testing.assert_array_equal(unpack_planes(data, bits), planes)


def test_scales_of_zeros_are_one() -> None:
    """A scale that is too small for its dtype, too."""
    zeros = np.array([[0.0, 0.0], [1e-9, 0.0]], np.float32)
    for choose in (symmetric, asymmetric):
        scales, zero_points = choose(zeros, 4, np.float16)
        assert scales.dtype == np.float16
        assert scales.tolist() == [1.0, 1.0]
        codes = nearest(zeros, scales, zero_points, 4)
        assert (codes == zero_points[:, None]).all()


def test_symmetric_steps_are_around_their_middle() -> None:
    """15 steps of four bits reach from -7.5 to 7.5 steps, and three of two from -1.5 to 1.5."""
    scales, zeros = symmetric(np.array([[15.0, -2.0], [3.0, -30.0]], np.float32), 4)
    assert (scales.tolist(), zeros.tolist()) == ([2.0, 4.0], [8, 8])
    scales, zeros = symmetric(np.array([[-3.0]], np.float32), 2)
    assert (scales.tolist(), zeros.tolist()) == ([2.0], [2])


def test_numbers_of_one_sign_reach_down_to_zero() -> None:
    scales, zeros = asymmetric(np.array([[15.0, 30.0], [-30.0, -15.0]], np.float32), 4)
    assert scales.tolist() == [2.0, 2.0]
    assert zeros.tolist() == [0, 15]


def test_ties_are_even_steps_from_zero() -> None:
    x, scales, zeros = np.arange(-2.5, 3.5, dtype=np.float32), np.float32([1.0]), np.int16([3])
    assert nearest(x[None], scales, zeros, 4)[0].tolist() == [1, 1, 3, 3, 5, 5]


def test_codes_stay_in_their_range() -> None:
    x, scales = np.array([[-99.0, 99.0]], np.float32), np.ones(1, np.float32)
    assert nearest(x, scales, np.int16([8]), 4)[0].tolist() == [0, 15]


def test_blocks_at_the_border_are_cut_off() -> None:
    shared = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    assert spread(shared, (3, 3), (2, 2)).tolist() == [[1, 1, 2], [1, 1, 2], [3, 3, 4]]


@pytest.mark.parametrize("choose", [symmetric, asymmetric])
@example(seed=22829905, bits=8)
@given(seed=seeds, bits=st.integers(2, 8))
def test_no_number_is_further_than_half_a_step(choose, seed: int, bits: int) -> None:
    x = normal(seed, 6, 16)
    scales, zeros = choose(x, bits)
    codes = nearest(x, scales, zeros, bits)
    decoded = scales[:, None] * (codes - zeros[:, None].astype(np.float32))
    assert_within_half_a_step(x, decoded, scales[:, None])
