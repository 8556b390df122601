"""NF4: worked by hand, as bitsandbytes does it, and numbers at random."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.quantization import nf4
from tests.support.quantised import assert_same_bits, golden, normal

seeds = st.integers(0, 2**32 - 1)
CASES = ("nf4", "nf4_nested")


def tensors_of(case: str) -> nf4.Tensors:
    arrays = golden(case)
    nested = None
    if "nested_absmax" in arrays:
        offset = np.float32(arrays["nested_offset"].item())
        nested = nf4.Nested(arrays["nested_absmax"], arrays["nested_quant_map"], offset)
    return nf4.Tensors(arrays["codes"], arrays["absmax"], arrays["quant_map"], (6, 67), nested)


def test_high_nibbles_come_first() -> None:
    """Two rows of 33 numbers in two blocks; the second block has the last two."""
    weight = np.full((33, 1), 0x77, np.uint8)
    weight[0], weight[16], weight[32] = 0xF0, 0x7F, 0x0F
    tensors = nf4.Tensors(weight, np.array([2.0, 5.0], np.float32), nf4.NF4, (2, 33))
    weights = nf4.decode(tensors)
    assert weights[0, [0, 1, 2, 32]].tolist() == [2.0, -2.0, 0.0, 0.0]
    assert weights[1, [0, 1, 30, 31, 32]].tolist() == [2.0, 0.0, 0.0, -5.0, 5.0]


def test_the_sizes_of_blocks_may_be_codes() -> None:
    """257 blocks: the last one has a size of its own for its code."""
    weight = np.full((257 * 32, 1), 0xF7, np.uint8)
    nested = nf4.Nested(np.array([2.0, 3.0], np.float32), nf4.dynamic_map(), np.float32(1))
    sizes = np.full(257, 255, np.uint8)
    sizes[0] = 127
    tensors = nf4.Tensors(weight, sizes, nf4.NF4, (257, 64), nested)
    assert nf4.decode(tensors)[[0, 1, 256], 0].tolist() == [1.0, 3.0, 4.0]


@pytest.mark.parametrize("case", CASES)
def test_decodes_as_bitsandbytes_does(case: str) -> None:
    assert_same_bits(nf4.decode(tensors_of(case)), golden(case)["weight"])


@pytest.mark.parametrize("case", CASES)
def test_quantises_as_bitsandbytes_does(case: str) -> None:
    """The offset is a mean, which each takes in its own order."""
    ours, theirs = nf4.quantise(golden(case)["x"], nested=case == "nf4_nested"), tensors_of(case)
    np.testing.assert_array_equal(ours.weight, theirs.weight)
    np.testing.assert_array_equal(ours.absmax, theirs.absmax)
    np.testing.assert_array_equal(ours.quant_map, theirs.quant_map)
    assert (ours.nested is None) == (theirs.nested is None)
    if ours.nested is not None and theirs.nested is not None:
        for mine, other in zip(ours.nested, theirs.nested, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-6)


def test_the_middle_between_two_numbers_is_the_lower_one() -> None:
    middle = (nf4.NF4[8] + nf4.NF4[9]) / np.float32(2)
    x = np.array([[1.0, middle, -1.0, np.nextafter(middle, np.float32(1))]], np.float32)
    assert nf4.quantise(x).weight.tolist() == [[0xF8], [0x09]]


def test_zeros_and_an_odd_count() -> None:
    tensors = nf4.quantise(np.zeros((1, 3), np.float32))
    assert tensors.weight.tolist() == [[0x77], [0x77]]
    assert nf4.decode(tensors).tolist() == [[0.0, 0.0, 0.0]]


@given(seed=seeds, nested=st.booleans())
def test_each_number_is_the_nearest_in_the_table(seed: int, nested: bool) -> None:
    """The table's widest gap is 0.3039, so a number is off by half of that at most. With double
    quantisation a block's largest number is known to about a hundredth."""
    x = normal(seed, 3, 67)
    tensors = nf4.quantise(x, nested=nested)
    sizes = [np.abs(block).max() for block in np.split(x.ravel(), [64, 128, 192])]
    largest = np.repeat(sizes, 64)[: x.size].reshape(x.shape)
    off = np.abs(nf4.decode(tensors) - x)
    if nested:
        assert (off <= largest * 0.152 + np.max(sizes) * 0.016).all()
    else:
        assert (off <= largest * 0.152).all()
        every = nf4.NF4 * largest[..., None]
        assert (off <= np.abs(every - x[..., None]).min(axis=-1) + largest * 1e-6).all()


@given(seed=seeds)
def test_codes_come_back(seed: int) -> None:
    """Quantised again, if each block has a number of the largest size."""
    codes = np.random.default_rng(seed).integers(0, 256, (96, 1), np.uint8)
    codes[::32] |= 0xF0
    tensors = nf4.Tensors(codes, np.array([0.5, 1.0, 4.0], np.float32), nf4.NF4, (3, 64))
    again = nf4.quantise(nf4.decode(tensors))
    np.testing.assert_array_equal(again.weight, codes)
    np.testing.assert_array_equal(again.absmax, tensors.absmax)
