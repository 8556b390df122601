"""GGUF's blocks: worked by hand, and bit by bit as the package `gguf` decodes them."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from hypothesis import given
from hypothesis import strategies as st

from reference.quantization import gguf, gguf_blocks, gguf_k

seeds = st.integers(0, 2**32 - 1)
names = st.sampled_from(gguf.NAMES)
BLOCKS, K_QUANTS = list(gguf_blocks.KINDS), list(gguf_k.KINDS)
QUANTISED_BY_GGUF = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]


def block(*fields: bytes | float) -> np.ndarray:
    """One block, from bytes and float16 numbers in order."""
    raw = [f if isinstance(f, bytes) else np.float16(f).tobytes() for f in fields]
    return np.frombuffer(b"".join(raw), np.uint8)


def family_of(name: str):
    return gguf_k if name in gguf_k.KINDS else gguf_blocks


def assert_same_bits(ours: np.ndarray, theirs: np.ndarray) -> None:
    """All bits but those of NaNs."""
    assert ours.dtype == theirs.dtype == np.float32
    same = ours.view(np.uint32) == theirs.view(np.uint32)
    assert (same | (np.isnan(ours) & np.isnan(theirs))).all()


def test_q4_0_by_hand() -> None:
    weights = gguf.decode(block(0.5, bytes([0xF1, 0x80] + [0x88] * 14)), "Q4_0")
    assert weights[[0, 16]].tolist() == [-3.5, 3.5]  # the low nibble 1, the high one 15
    assert weights[[1, 17]].tolist() == [-4.0, 0.0]
    assert not weights[2:16].any() and not weights[18:].any()


def test_q4_1_by_hand() -> None:
    weights = gguf.decode(block(0.5, -1.0, bytes([0xF1] + [0] * 15)), "Q4_1")
    assert weights[[0, 16, 1]].tolist() == [-0.5, 6.5, -1.0]


def test_q5_by_hand() -> None:
    """The fifth bits of elements 0 and 17 are set."""
    fifth = bytes([1, 0, 2, 0])
    weights = gguf.decode(block(2.0, fifth, bytes([0x21] + [0x43] + [0] * 14)), "Q5_0")
    assert weights[[0, 16, 1, 17, 2]].tolist() == [2.0, -28.0, -26.0, 8.0, -32.0]
    weights = gguf.decode(block(2.0, 1.0, fifth, bytes([0x21] + [0x43] + [0] * 14)), "Q5_1")
    assert weights[[0, 16, 1, 17, 2]].tolist() == [35.0, 5.0, 7.0, 41.0, 1.0]


def test_q8_0_by_hand() -> None:
    weights = gguf.decode(block(0.25, bytes([1, 255, 127, 128] + [0] * 28)), "Q8_0")
    assert weights[:5].tolist() == [0.25, -0.25, 31.75, -32.0, 0.0]


def test_iq4_nl_by_hand() -> None:
    weights = gguf.decode(block(0.5, bytes([0x80, 0xF7] + [0x88] * 14)), "IQ4_NL")
    assert weights[[0, 16, 1, 17, 2]].tolist() == [-63.5, 0.5, -5.0, 56.5, 0.5]


def test_the_numbers_of_iq4_nl() -> None:
    """Code i is the low nibble of byte i, and 15 - i the high one."""
    codes = bytes([i + 16 * (15 - i) for i in range(16)])
    weights = gguf.decode(block(1.0, codes), "IQ4_NL").tolist()
    negative, positive = (
        [-127, -104, -83, -65, -49, -35, -22, -10],
        [1, 13, 25, 38, 53, 69, 89, 113],
    )
    assert weights[:16] == negative + positive
    assert weights[16:] == weights[15::-1]


def test_q2_k_by_hand() -> None:
    """Element 16 is the first of group 1; element 32 is the second plane of byte 0."""
    small, codes = bytes([0x21, 0x03] + [0x11] * 14), bytes([0b00_00_11_10] + [0] * 15 + [1] * 48)
    weights = gguf.decode(block(small, codes, 0.5, 0.25), "Q2_K")
    assert weights[[0, 1, 16, 32]].tolist() == [0.5, -0.5, 1.5, 1.25]


def test_q3_k_by_hand() -> None:
    """Scales of 32 + s; a code is less by 4 where its bit in the first 32 bytes is not set."""
    high, low = bytes([1] + [0] * 31), bytes([0b11_10] + [0] * 63)
    scales = bytes([0x02, 0, 0x05] + [0] * 5) + bytes([0b10] + [0b10101010] * 3)
    weights = gguf.decode(block(high, low, scales, 0.5), "Q3_K")
    assert weights[0] == 0.5 * 2 * 2  # the lowest bits of scale 0 are 2, its upper bits 32
    assert weights[1] == 0.5 * 2 * -4
    assert weights[32] == 0.5 * 5 * -1  # of group 2; in the second plane, whose code is 3
    assert weights[64] == 0.5 * -32 * -4  # the upper bits of scale 4 are 0


def test_q4_k_by_hand() -> None:
    """Scale 4 has its lower bits in byte 8 and its upper bits in byte 0; minimum 4 in 4 and 8."""
    small = bytes([0x43, 0, 0, 0, 0x85, 0, 0, 0, 0x72, 0, 0, 0])
    weights = gguf.decode(block(2.0, 0.25, small, bytes([0x21] * 128)), "Q4_K")
    assert weights[0] == 2.0 * 3 * 1 - 0.25 * 5
    assert weights[32] == 0.0
    assert weights[128] == 2.0 * (16 + 2) * 1 - 0.25 * (32 + 7)


def test_q5_k_by_hand() -> None:
    small = bytes([3, 1, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0])
    high = bytes([0b11, 0b10] + [0] * 30)
    weights = gguf.decode(block(0.5, 0.25, small, high, bytes([0x21] * 128)), "Q5_K")
    assert weights[[0, 1]].tolist() == [0.5 * 3 * 17 - 1.25, 0.5 * 3 * 1 - 1.25]
    assert weights[[32, 33, 34]].tolist() == [0.5 * 18, 0.5 * 18, 0.5 * 2]


def test_q6_k_by_hand() -> None:
    """Element 64 is in the upper nibble of byte 0; element 32 in the lower one of byte 32."""
    low = bytes([0x21] + [0] * 31 + [0x03] + [0] * 95)
    high, scales = bytes([0b00_01_10_11] + [0] * 63), bytes([1, 1, 255, 1, 2] + [1] * 11)
    weights = gguf.decode(block(low, high, scales, 0.5), "Q6_K")
    assert weights[0] == 0.5 * (1 + 48 - 32)
    assert weights[32] == 0.5 * -1 * (3 + 32 - 32)
    assert weights[64] == 0.5 * 2 * (2 + 16 - 32)


@pytest.mark.parametrize("name", gguf.NAMES)
def test_zeros_stay_zeros(name: str) -> None:
    zeros = np.zeros((2, 256), np.float32)
    assert not gguf.decode(gguf.quantise(zeros, name), name).any()


def test_rows_are_whole_blocks() -> None:
    with pytest.raises(ValueError, match="a row of 35 bytes of Q4_0: it must be a multiple of 18"):
        gguf.decode(np.zeros((2, 35), np.uint8), "Q4_0")
    with pytest.raises(ValueError, match="a row of 40 numbers of Q4_K: it must be a multiple of 2"):
        gguf.quantise(np.zeros((2, 40), np.float32), "Q4_K")


@pytest.mark.parametrize("name", gguf.NAMES)
@given(seed=seeds)
def test_decodes_as_the_package_does(name: str, seed: int) -> None:
    """Any bytes are blocks."""
    shape = (3, 2 * (gguf_k.KINDS.get(name) or gguf_blocks.KINDS[name]).num_bytes)
    data = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):
        theirs = quants.dequantize(data, GGMLQuantizationType[name])
        assert_same_bits(gguf.decode(data, name), theirs)


@pytest.mark.parametrize("name", QUANTISED_BY_GGUF)
def test_quantises_as_the_package_does(name: str) -> None:
    """Numbers without ties, which ggml rounds away from zero."""
    x = np.random.default_rng(0).normal(size=(40, 256)).astype(np.float32)
    theirs = quants.quantize(x, GGMLQuantizationType[name])
    np.testing.assert_array_equal(gguf.quantise(x, name), theirs)


@pytest.mark.parametrize(
    ("name", "x", "wanted"),
    [
        ("Q4_0", [-8.0, 0.5, 1.5, -2.5], [-8.0, 0.0, 2.0, -2.0]),
        ("Q4_1", [0.0, 0.5, 1.5, 15.0], [0.0, 0.0, 2.0, 15.0]),
        ("Q5_0", [-16.0, 0.5, 1.5, -2.5], [-16.0, 0.0, 2.0, -2.0]),
        ("Q5_1", [0.0, 0.5, 1.5, 31.0], [0.0, 0.0, 2.0, 31.0]),
        ("Q8_0", [127.0, 0.5, 1.5, -2.5], [127.0, 0.0, 2.0, -2.0]),
        ("IQ4_NL", [-127.0, 7.0, 63.0, 70.0], [-127.0, 1.0, 69.0, 69.0]),
        ("Q2_K", [45.0, 7.5, 22.5, 37.5], [45.0, 0.0, 30.0, 30.0]),
        ("Q3_K", [-128.0, 16.0, 48.0, -80.0], [-128.0, 0.0, 64.0, -64.0]),
        ("Q4_K", [945.0, 31.5, 94.5, 157.5], [945.0, 0.0, 126.0, 126.0]),
        ("Q5_K", [1953.0, 31.5, 94.5, 157.5], [1953.0, 0.0, 126.0, 126.0]),
        ("Q6_K", [-4096.0, 64.0, 192.0, -320.0], [-4096.0, 0.0, 256.0, -256.0]),
    ],
)
def test_ties_go_to_the_even_code(name: str, x: list[float], wanted: list[float]) -> None:
    row = np.zeros((1, family_of(name).BLOCK), np.float32)
    row[0, :4] = x
    assert gguf.decode(gguf.quantise(row, name), name)[0, :4].tolist() == wanted


@pytest.mark.parametrize("name", gguf.NAMES)
@given(seed=seeds)
def test_pack_is_the_opposite_of_unpack(name: str, seed: int) -> None:
    family = family_of(name)
    data = np.random.default_rng(seed).integers(0, 256, (3, family.KINDS[name].num_bytes), np.uint8)
    np.testing.assert_array_equal(family.pack(family.unpack(data, name), name), data)


@pytest.mark.parametrize("name", BLOCKS)
@given(seed=seeds)
def test_a_block_is_within_half_a_step(name: str, seed: int) -> None:
    """The lowest code is one more than the highest, so the far end may be a whole step away. Half
    steps of IQ4_NL are half the widest gap of its table; float16 takes its part of each number."""
    x = np.random.default_rng(seed).normal(size=(4, 32)).astype(np.float32)
    data = gguf.quantise(x, name)
    step = np.abs(family_of(name).unpack(data, name).d.astype(np.float32))[:, None]
    half = step * {"IQ4_NL": 12}.get(name, 0.5)
    error = np.abs(gguf.decode(data, name) - x) - np.abs(x).max() * 2e-3
    clipped = np.sign(x) != np.sign(np.take_along_axis(x, np.abs(x).argmax(-1)[:, None], -1))
    assert (error <= np.where(clipped, 2 * half, half)).all()
    if name in ("Q4_1", "Q5_1", "Q8_0"):
        assert (error <= half).all()


@pytest.mark.parametrize("name", K_QUANTS)
@given(seed=seeds)
def test_a_k_quant_takes_the_nearest_code_and_good_scales(name: str, seed: int) -> None:
    rng, kind = np.random.default_rng(seed), gguf_k.KINDS[name]
    x = rng.normal(size=(2, kind.groups, 1)) * rng.normal(size=(2, kind.groups, 256 // kind.groups))
    x = x.astype(np.float32).reshape(2, 256)
    data = gguf.quantise(x, name)
    ours, fields = gguf.decode(data, name), gguf_k.unpack(data, name)
    ends = [np.full_like(fields.codes, code) for code in (0, 2**kind.bits - 1)]
    low, high = (gguf_k.decode(gguf_k.pack(fields._replace(codes=c), name), name) for c in ends)
    every = np.linspace(low, high, 2**kind.bits)
    nearest = np.abs(every - x).min(axis=0)
    assert (np.abs(ours - x) <= nearest + 1e-6).all()
    extreme, (least, most) = np.abs(x).max(), kind.scales
    step = 2 * extreme / (2**kind.bits - 1)
    rounded = extreme / max(-least, most)  # what a scale or a minimum is off, for a group
    assert np.abs(ours - x).max() <= step + 2 * rounded
