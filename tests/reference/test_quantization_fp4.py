"""MXFP4 and NVFP4: worked by hand, as compressed-tensors does them, and numbers at random."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.quantization import mxfp4, nvfp4
from reference.quantization.bits import unpack_stream
from reference.quantization.small_floats import E2M1, E4M3
from tests.support.quantised import assert_same_bits, golden, normal

seeds = st.integers(0, 2**32 - 1)


def nvfp4_of(case: str) -> nvfp4.Tensors:
    arrays = golden(case)
    scale = np.float32(arrays["weight_global_scale"].item())
    return nvfp4.Tensors(arrays["weight_packed"], arrays["weight_scale"], scale)


def test_mxfp4_by_hand() -> None:
    """Two blocks; low nibbles come first, and the second block's numbers are doubled."""
    blocks = np.zeros((2, 16), np.uint8)
    blocks[:, 0], blocks[:, 15] = 0x21, 0xF8
    row = mxfp4.decode(blocks, np.array([127, 128], np.uint8))
    assert row[[0, 1, 30, 31]].tolist() == [0.5, 1.0, 0.0, -6.0]
    assert row[[32, 33, 62, 63]].tolist() == [1.0, 2.0, 0.0, -12.0]


def test_mxfp4_decodes_as_compressed_tensors_does() -> None:
    arrays = golden("mxfp4")
    blocks = arrays["weight_packed"].reshape(16, 2, 16)
    assert_same_bits(mxfp4.decode(blocks, arrays["weight_scale"]), arrays["weight"])


def test_mxfp4_quantises_as_compressed_tensors_does() -> None:
    arrays = golden("mxfp4")
    blocks, scales = mxfp4.quantise(arrays["x"])
    np.testing.assert_array_equal(scales, arrays["weight_scale"])
    np.testing.assert_array_equal(blocks.reshape(16, 32), arrays["weight_packed"])


def test_mxfp4_ties_and_what_is_too_large() -> None:
    """The largest, 7.5, is below 8: the scale is 1. It becomes 6."""
    x = np.zeros((1, 32), np.float32)
    x[0, :4] = 7.5, 2.5, 0.25, -5.0
    blocks, scales = mxfp4.quantise(x)
    assert scales.tolist() == [[127]]
    assert mxfp4.decode(blocks, scales)[0, :5].tolist() == [6.0, 2.0, 0.0, -4.0, 0.0]


def test_mxfp4_zeros_and_tiny_numbers() -> None:
    x = np.zeros((1, 64), np.float32)
    x[0, 32] = 2.0**-140
    blocks, scales = mxfp4.quantise(x)
    assert scales.tolist() == [[124, 0]]
    assert not mxfp4.decode(blocks, scales).any()


def test_nvfp4_by_hand() -> None:
    """Two groups of 16 with the scales 1 and 2, both divided by 4."""
    packed = np.full((1, 16), 0x21, np.uint8)
    tensors = nvfp4.Tensors(packed, np.array([[0x38, 0x40]], np.uint8), np.float32(4))
    row = nvfp4.decode(tensors)[0]
    assert row[[0, 1, 15, 16, 17, 31]].tolist() == [0.125, 0.25, 0.25, 0.25, 0.5, 0.5]


def test_nvfp4_decodes_as_compressed_tensors_does() -> None:
    assert_same_bits(nvfp4.decode(nvfp4_of("nvfp4")), golden("nvfp4")["weight"])


def test_nvfp4_quantises_as_compressed_tensors_does() -> None:
    ours, theirs = nvfp4.quantise(golden("nvfp4")["x"]), nvfp4_of("nvfp4")
    np.testing.assert_allclose(ours.weight_global_scale, theirs.weight_global_scale, rtol=1e-7)
    np.testing.assert_array_equal(ours.weight_scale, theirs.weight_scale)
    np.testing.assert_array_equal(ours.weight_packed, theirs.weight_packed)


def test_nvfp4_ties() -> None:
    """The largest number is 6 * 448, so that the global scale is 1 and that of its group 448."""
    x = np.zeros((1, 32), np.float32)
    x[0, 0], x[0, 16:20] = 2688.0, [6.0, 2.5, -0.25, 0.75]
    tensors = nvfp4.quantise(x)
    assert tensors.weight_global_scale == 1.0
    assert nvfp4.decode(tensors)[0, 16:20].tolist() == [6.0, 2.0, 0.0, 1.0]
    assert nvfp4.decode(tensors)[0, 0] == 2688.0


def test_nvfp4_zeros() -> None:
    tensors = nvfp4.quantise(np.zeros((2, 16), np.float32))
    assert tensors.weight_global_scale == 1.0
    assert not nvfp4.decode(tensors).any()


def test_rows_are_whole_blocks() -> None:
    with pytest.raises(ValueError, match="rows of 48 numbers: they must be a multiple of 32"):
        mxfp4.quantise(np.zeros((1, 48), np.float32))
    with pytest.raises(ValueError, match="rows of 40 numbers: they must be a multiple of 16"):
        nvfp4.quantise(np.zeros((1, 40), np.float32))


@given(seed=seeds)
def test_mxfp4_decodes_any_bytes_as_ml_dtypes_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (2, 3, 16), np.uint8)
    scales = rng.integers(64, 190, (2, 3), np.uint8)
    numbers = np.stack([blocks & 15, blocks >> 4], axis=-1).view(ml_dtypes.float4_e2m1fn)
    powers = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    theirs = numbers.astype(np.float32).reshape(2, 3, 32) * powers[..., None]
    assert_same_bits(mxfp4.decode(blocks, scales), theirs.reshape(2, 96))


def assert_nearest(x: np.ndarray, decoded: np.ndarray, scales: np.ndarray, size: int) -> None:
    """No other number of E2M1, times the scale, is nearer."""
    every = E2M1 * np.repeat(scales, size, axis=1)[..., None]
    nearest = np.abs(every - x[..., None]).min(axis=-1)
    assert (np.abs(decoded - x) <= nearest * 1.0001 + np.abs(x) * 1e-6).all()


@given(seed=seeds)
def test_mxfp4_takes_the_nearest_code(seed: int) -> None:
    x = normal(seed, 3, 64)
    blocks, scales = mxfp4.quantise(x)
    powers = 2.0 ** (scales.astype(np.float32) - 127)
    assert_nearest(x, mxfp4.decode(blocks, scales), powers, 32)
    largest = np.abs(x).reshape(3, 2, 32).max(axis=-1)
    assert (largest < 8 * powers).all() and (largest >= 4 * powers).all()


@given(seed=seeds)
def test_nvfp4_takes_the_nearest_code_and_a_good_scale(seed: int) -> None:
    """A scale has four bits, so the largest number of a group is within a sixteenth of 6 steps.
    Rows that are much smaller than others have scales with fewer bits."""
    x = normal(seed, 3, 64)
    tensors = nvfp4.quantise(x)
    scales = E4M3[tensors.weight_scale] / tensors.weight_global_scale
    assert_nearest(x, nvfp4.decode(tensors), scales, 16)
    largest = np.abs(x).reshape(3, 4, 16).max(axis=-1)
    off = np.abs(largest - 6 * scales)
    assert (off <= largest / 16 + 6 * 2**-10 / tensors.weight_global_scale).all()


@given(seed=seeds)
def test_codes_come_back(seed: int) -> None:
    """Quantised again, if each group has the largest code."""
    codes = np.random.default_rng(seed).integers(0, 16, (2, 64), np.uint8)
    codes[:, ::16] = 7
    packed = codes[:, ::2] | codes[:, 1::2] << np.uint8(4)
    scales = np.full((2, 4), 0x7E, np.uint8)
    again = nvfp4.quantise(nvfp4.decode(nvfp4.Tensors(packed, scales, np.float32(1))))
    np.testing.assert_array_equal(again.weight_packed, packed)
    blocks, powers = packed.reshape(2, 2, 16), np.full((2, 2), 120, np.uint8)
    np.testing.assert_array_equal(mxfp4.quantise(mxfp4.decode(blocks, powers))[0], blocks)
    np.testing.assert_array_equal(unpack_stream(blocks, 4).reshape(2, 64), codes)
