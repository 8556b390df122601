"""compressed-tensors: worked by hand, as its package does it, and for codes at random."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reference.quantization import compressed_tensors as ct
from tests.support.quantised import assert_same_bits, assert_within_half_a_step, golden, normal

seeds = st.integers(0, 2**32 - 1)
PACKED = {"packed4": 4, "packed4_zeros": 4, "packed3_zeros": 3, "packed8": 8}


def packed_of(case: str) -> ct.Packed:
    arrays = golden(case)
    shape = arrays["weight_shape"].tolist()
    zeros = arrays.get("weight_zero_point")
    return ct.Packed(arrays["weight_packed"], arrays["weight_scale"], (shape[0], shape[1]), zeros)


def test_codes_are_stored_from_zero() -> None:
    words, scales = np.array([[0x76543210], [-1]], np.int32), np.array([[0.5], [2.0]], np.float32)
    weights = ct.decode_packed(ct.Packed(words, scales, (2, 8)), 4)
    assert weights[0].tolist() == [-4.0, -3.5, -3.0, -2.5, -2.0, -1.5, -1.0, -0.5]
    assert weights[1].tolist() == [14.0] * 8


def test_zero_points_are_packed_along_the_outputs() -> None:
    """Two outputs, two groups; zero points -8 + 0, 1, 2 and 3."""
    words, scales = np.array([[0x88], [0x88]], np.int32), np.ones((2, 2), np.float32)
    zeros = np.array([[0x20, 0x31]], np.int32)
    weights = ct.decode_packed(ct.Packed(words, scales, (2, 2), zeros), 4)
    assert weights.tolist() == [[8.0, 7.0], [6.0, 5.0]]


def test_inputs_may_be_grouped_by_activation_order() -> None:
    words, scales = np.array([[0x9999]], np.int32), np.array([[1.0, 3.0]], np.float32)
    tensors = ct.Packed(words, scales, (1, 4), None, np.array([1, 0, 0, 1], np.int32))
    assert ct.decode_packed(tensors, 4)[0].tolist() == [3.0, 1.0, 1.0, 3.0]


def test_earlier_versions_packed_whole_codes_into_words() -> None:
    """A word held ten codes of 3 bits. 32 codes take four such words, and three as a stream."""
    codes = np.full((1, 32), -4, np.int8)
    codes[0, [9, 10]] = -3, 3
    words = ct.pack(codes, 3, whole_words=True)
    assert words.tolist() == [[1 << 27, 7, 0, 0]]
    np.testing.assert_array_equal(ct.unpack(words, 3, 32), codes)
    stream = ct.pack(codes, 3)
    assert stream.view(np.uint32).tolist() == [[(1 << 27) + (3 << 30), 1, 0]]
    np.testing.assert_array_equal(ct.unpack(stream, 3, 32), codes)


@pytest.mark.parametrize("case", PACKED)
def test_decodes_packed_codes_as_the_package_does(case: str) -> None:
    assert_same_bits(ct.decode_packed(packed_of(case), PACKED[case]), golden(case)["weight"])


@pytest.mark.parametrize("case", ["int8", "int8_zeros"])
def test_decodes_integers_as_the_package_does(case: str) -> None:
    arrays = golden(case)
    zeros = arrays.get("weight_zero_point")
    weights = ct.decode_integers(ct.Integers(arrays["codes"], arrays["weight_scale"], zeros))
    assert_same_bits(weights, arrays["weight"])


@pytest.mark.parametrize("case", PACKED)
def test_quantises_as_the_package_does(case: str) -> None:
    """Numbers without ties, in groups of 32, and in one for each output."""
    theirs = packed_of(case)
    ours = ct.quantise_packed(
        golden(case)["x"],
        PACKED[case],
        64 // theirs.weight_scale.shape[1],
        symmetric=theirs.weight_zero_point is None,
    )
    np.testing.assert_allclose(ours.weight_scale, theirs.weight_scale, rtol=2e-7)
    np.testing.assert_array_equal(ours.weight_packed, theirs.weight_packed)
    if theirs.weight_zero_point is not None:
        np.testing.assert_array_equal(ours.weight_zero_point, theirs.weight_zero_point)


def test_rounds_half_to_even() -> None:
    x = np.array([[-7.5, 0.5, 1.5, -2.5]], np.float32)
    assert ct.decode_packed(ct.quantise_packed(x, 4, 4), 4).tolist() == [[-8.0, 0.0, 2.0, -2.0]]
    x = np.array([[-127.5, 0.5, 1.5, -2.5]], np.float32)
    assert ct.decode_integers(ct.quantise_integers(x, 4)).tolist() == [[-128.0, 0.0, 2.0, -2.0]]


def test_groups_are_whole() -> None:
    with pytest.raises(ValueError, match="64 inputs: they must be a multiple of group_size 48"):
        ct.quantise_packed(normal(0, 8, 64), 4, 48)


@given(seed=seeds, bits=st.integers(2, 8), whole_words=st.booleans())
def test_unpack_is_the_opposite_of_pack(seed: int, bits: int, whole_words: bool) -> None:
    codes = np.random.default_rng(seed).integers(
        -(2 ** (bits - 1)), 2 ** (bits - 1), (3, 64), np.int8
    )
    words = ct.pack(codes, bits, whole_words=whole_words)
    np.testing.assert_array_equal(ct.unpack(words, bits, 64), codes)


@example(seed=42111, bits=8, symmetric=True)
@given(seed=seeds, bits=st.integers(2, 8), symmetric=st.booleans())
def test_a_matrix_is_within_half_a_step(seed: int, bits: int, symmetric: bool) -> None:
    x = normal(seed, 5, 64)
    tensors = ct.quantise_packed(x, bits, 32, symmetric=symmetric)
    steps = np.repeat(tensors.weight_scale, 32, axis=1)
    assert_within_half_a_step(x, ct.decode_packed(tensors, bits), steps)
    integers = ct.quantise_integers(x, 64, symmetric=symmetric)
    assert_within_half_a_step(x, ct.decode_integers(integers), integers.weight_scale)
