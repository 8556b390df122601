"""GPTQ: worked by hand, as AutoGPTQ packs and decodes it, and for codes at random."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reference.quantization import gptq
from tests.support.quantised import assert_same_bits, golden, normal

seeds = st.integers(0, 2**32 - 1)
WIDTHS = (2, 3, 4, 8)


def tensors_of(case: str) -> gptq.Tensors:
    arrays = golden(case)
    return gptq.Tensors(**{name: arrays[name] for name in gptq.Tensors._fields})


def by_hand() -> gptq.Tensors:
    """Eight inputs in two groups, one after another in turn; eight outputs, the first of note."""
    qweight, qzeros = np.zeros((1, 8), np.int32), np.zeros((2, 1), np.int32)
    qweight[0, 0], qzeros[:, 0] = 0x76543210, [1, 4]
    scales = np.ones((2, 8), np.float16)
    scales[:, 0] = 0.5, 2.0
    return gptq.Tensors(qweight, qzeros, scales, np.array([0, 1] * 4, np.int32))


def test_version_1_stores_zero_points_less_one() -> None:
    weights = gptq.decode(by_hand(), 4)
    assert weights.shape == (8, 8)
    assert weights[0].tolist() == [-1.0, -8.0, 0.0, -4.0, 1.0, 0.0, 2.0, 4.0]


def test_version_2_stores_zero_points() -> None:
    weights = gptq.decode(by_hand(), 4, version=2)
    assert weights[0].tolist() == [-0.5, -6.0, 0.5, -2.0, 1.5, 2.0, 2.5, 6.0]


@pytest.mark.parametrize("bits", WIDTHS)
def test_decodes_as_auto_gptq_does(bits: int) -> None:
    assert_same_bits(gptq.decode(tensors_of(f"gptq{bits}"), bits), golden(f"gptq{bits}")["weight"])


@pytest.mark.parametrize("bits", WIDTHS)
def test_packs_as_auto_gptq_does(bits: int) -> None:
    """In version 2 the zero points are one more."""
    tensors = tensors_of(f"gptq{bits}")
    codes, zeros = gptq.unpack(tensors, bits)
    again = gptq.pack(codes, zeros, tensors.scales, tensors.g_idx, bits)
    for ours, theirs in zip(again, tensors, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    second = gptq.pack(codes, zeros, tensors.scales, tensors.g_idx, bits, version=2)
    assert (second.qzeros != tensors.qzeros).any()
    assert_same_bits(gptq.decode(second, bits, version=2), gptq.decode(tensors, bits))


def test_rounds_half_to_even() -> None:
    """Steps of one around the zero point 2; 1.5 and 2.5 are as near to two steps as to another."""
    x = np.tile(np.array([-2.0, 13.0, 0.5, 1.5, 2.5, 3.5, 0.0, 1.0], np.float32), (8, 1))
    tensors = gptq.quantise(x, 4, 8)
    assert gptq.decode(tensors, 4)[0].tolist() == [-2.0, 13.0, 0.0, 2.0, 2.0, 4.0, 0.0, 1.0]
    assert gptq.unpack(tensors, 4)[1].tolist() == [[2] * 8]


def test_symmetric_zero_points_are_in_the_middle() -> None:
    tensors = gptq.quantise(normal(0, 32, 64), 4, 32, symmetric=True)
    assert np.unique(tensors.qzeros).tolist() == [0x77777777]


def test_version_1_has_no_zero_point_of_zero() -> None:
    """All positive: fifteen steps of one from 0, and with the zero point 1 only fourteen."""
    x = np.tile(np.arange(8, 16, dtype=np.float32), (8, 1))
    assert gptq.decode(gptq.quantise(x, 4, 8, version=2), 4, version=2)[0, -1] == 15.0
    assert gptq.decode(gptq.quantise(x, 4, 8), 4)[0, -2:].tolist() == [14.0, 14.0]


def test_groups_are_whole() -> None:
    with pytest.raises(ValueError, match="64 inputs: they must be a multiple of group_size 48"):
        gptq.quantise(normal(0, 8, 64), 4, 48)


@given(seed=seeds, bits=st.sampled_from(WIDTHS), version=st.sampled_from([1, 2]))
def test_unpack_is_the_opposite_of_pack(seed: int, bits: int, version: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2**bits, (64, 32), np.uint8)
    zeros = rng.integers(version == 1, 2**bits, (2, 32)).astype(np.int16)
    rest = np.ones((2, 32), np.float16), np.zeros(64, np.int32)
    unpacked = gptq.unpack(
        gptq.pack(codes, zeros, *rest, bits, version=version), bits, version=version
    )
    np.testing.assert_array_equal(unpacked[0], codes)
    np.testing.assert_array_equal(unpacked[1], zeros)


@example(seed=0, bits=3, version=1, symmetric=False)
@example(seed=710, bits=2, version=1, symmetric=False)  # a group with next to nothing below 0
@given(
    seed=seeds,
    bits=st.sampled_from(WIDTHS),
    version=st.sampled_from([1, 2]),
    symmetric=st.booleans(),
)
def test_act_order_is_within_half_a_step(
    seed: int, bits: int, version: int, symmetric: bool
) -> None:
    """Half of the step of the input's group, and what float16 takes from the scale.

    Version 1 has a step less for a group whose zero point would be 0: there the largest are cut.
    """
    x = np.random.default_rng(seed).normal(size=(32, 64)).astype(np.float32)
    order = np.random.default_rng(seed).permutation(64).astype(np.int32)
    tensors = gptq.quantise(x, bits, 32, version=version, symmetric=symmetric, order=order)
    assert tensors.g_idx[order].tolist() == [0] * 32 + [1] * 32
    half = tensors.scales.astype(np.float32)[tensors.g_idx].T / 2
    decoded = gptq.decode(tensors, bits, version=version)
    free = gptq.quantise(x, bits, 32, version=2, symmetric=symmetric, order=order)
    cut = (version == 1) & (gptq.unpack(free, bits, version=2)[1] == 0)[tensors.g_idx].T
    reached = np.where(cut, np.minimum(x, 2 * half * (2**bits - 2)), x)
    assert (np.abs(decoded - reached) <= half + 2e-3 * np.abs(x).max()).all()
