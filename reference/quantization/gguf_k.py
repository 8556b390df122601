"""GGUF's K-quants: 256 weights in groups of 16 or 32, whose scales are quantised in turn.

A block has one float16 scale d for 8 or 16 small integers, the scales of its groups; where groups
have minimums, dmin does the same for them. A weight is

    (d sc) code - (dmin mn)        Q2_K, Q4_K, Q5_K
    (d sc) (code - offset)         Q3_K, Q6_K

and takes 2.6, 3.4, 4.5, 5.5 and 6.6 bits, all counted. The order of fields and bits differs from
kind to kind; the functions below name each. The layouts are those of `block_q2_K` to `block_q6_K`
in ggml's `ggml-common.h`; the package `gguf` has the same in Python (`gguf.quants`), and the tests
compare every bit with it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float16, Float32, Int16, UInt8

from reference.quantization.bits import pack_planes, unpack_planes
from reference.quantization.gguf_blocks import bytes_of

BLOCK = 256


class Kind(NamedTuple):
    """A kind of block: bits of a code, its offset, groups, the range of a group's scale."""

    bits: int
    offset: int
    groups: int
    scales: tuple[int, int]
    num_bytes: int

    @property
    def has_minimums(self) -> bool:
        return self.offset == 0


KINDS = {
    "Q2_K": Kind(2, 0, 16, (0, 15), 84),
    "Q3_K": Kind(3, 4, 16, (-32, 31), 110),
    "Q4_K": Kind(4, 0, 8, (0, 63), 144),
    "Q5_K": Kind(5, 0, 8, (0, 63), 176),
    "Q6_K": Kind(6, 32, 16, (-128, 127), 210),
}


class Fields(NamedTuple):
    """What blocks hold: codes from 0 to 2^bits - 1, and a scale and minimum for each group."""

    codes: UInt8[np.ndarray, "n 256"]
    d: Float16[np.ndarray, "n"]
    scales: Int16[np.ndarray, "n G"]
    dmin: Float16[np.ndarray, "n"]
    minimums: Int16[np.ndarray, "n G"]


def unpack(data: UInt8[np.ndarray, "n B"], name: str) -> Fields:
    """The fields of n blocks. Codes lie in planes of 32 bytes (of 64, in Q6_K for the low bits)."""
    none = np.zeros(len(data), np.float16), np.zeros((len(data), KINDS[name].groups), np.int16)
    match name:
        case "Q2_K":  # 16 scales below their minimums, codes, d, dmin
            small, codes, d, dmin = _cut(data, 16, 64, 2, 2)
            scales, minimums = (small & 15).astype(np.int16), (small >> 4).astype(np.int16)
            return Fields(_planes(codes, 2, 32), _half(d), scales, _half(dmin), minimums)
        case "Q3_K":  # third bits, two bits of each code, scales, d
            high, low, small, d = _cut(data, 32, 64, 12, 2)
            codes = _planes(low, 2, 32) | _planes(high, 1, 32) << np.uint8(2)
            return Fields(codes, _half(d), _scales_of_q3(small), *none)
        case "Q4_K":  # d, dmin, scales and minimums, codes
            d, dmin, small, codes = _cut(data, 2, 2, 12, 128)
            scales, minimums = _scales_and_minimums(small)
            return Fields(_planes(codes, 4, 32), _half(d), scales, _half(dmin), minimums)
        case "Q5_K":  # as Q4_K, with the fifth bits before the others
            d, dmin, small, high, low = _cut(data, 2, 2, 12, 32, 128)
            scales, minimums = _scales_and_minimums(small)
            codes = _planes(low, 4, 32) | _planes(high, 1, 32) << np.uint8(4)
            return Fields(codes, _half(d), scales, _half(dmin), minimums)
    low, high, small, d = _cut(data, 128, 64, 16, 2)  # Q6_K: four bits, two bits, scales, d
    codes = _planes(low, 4, 64) | _planes(high, 2, 32) << np.uint8(4)
    return Fields(codes, _half(d), small.view(np.int8).astype(np.int16), *none)


def pack(fields: Fields, name: str) -> UInt8[np.ndarray, "n B"]:
    """The opposite of `unpack`."""
    codes, scales, minimums = fields.codes, fields.scales, fields.minimums
    d, dmin = bytes_of(fields.d), bytes_of(fields.dmin)
    match name:
        case "Q2_K":
            small = (scales | minimums << 4).astype(np.uint8)
            parts = [small, _from_planes(codes, 2, 32), d, dmin]
        case "Q3_K":
            high, low = _from_planes(codes >> 2, 1, 32), _from_planes(codes & np.uint8(3), 2, 32)
            parts = [high, low, _bytes_of_q3_scales(scales), d]
        case "Q4_K":
            small = _bytes_of_scales_and_minimums(scales, minimums)
            parts = [d, dmin, small, _from_planes(codes, 4, 32)]
        case "Q5_K":
            small = _bytes_of_scales_and_minimums(scales, minimums)
            high, low = _from_planes(codes >> 4, 1, 32), _from_planes(codes & np.uint8(15), 4, 32)
            parts = [d, dmin, small, high, low]
        case _:
            high, low = _from_planes(codes >> 4, 2, 32), _from_planes(codes & np.uint8(15), 4, 64)
            parts = [low, high, scales.astype(np.int8).view(np.uint8), d]
    return np.concatenate(parts, axis=-1)


def decode(data: UInt8[np.ndarray, "n B"], name: str) -> Float32[np.ndarray, "n 256"]:
    """The weights of n blocks, in float32 as ggml computes them.

    A block of Q6_K whose codes are 0, whose scales are 2, and whose d is 0.5:

    >>> block = np.frombuffer(bytes(192) + bytes([2] * 16) + np.float16(0.5).tobytes(), np.uint8)
    >>> decode(block[None], "Q6_K")[0, 0].item()  # 0.5 * 2 * (0 - 32)
    -32.0
    """
    codes, d, scales, dmin, minimums = unpack(data, name)
    kind = KINDS[name]
    grouped = codes.reshape(len(data), kind.groups, -1) - np.float32(kind.offset)
    weights = (d.astype(np.float32)[:, None] * scales.astype(np.float32))[..., None] * grouped
    if kind.has_minimums:
        least = dmin.astype(np.float32)[:, None] * minimums.astype(np.float32)
        weights = weights - least[..., None]
    return weights.reshape(len(data), BLOCK)


def quantise(x: Float32[np.ndarray, "n 256"], name: str) -> UInt8[np.ndarray, "n B"]:
    """Blocks near x: scales from the extremes of each group, then the nearest code, ties to even.

    ggml's own quantisers search for scales with a smaller square error; these do not. Codes are
    found with the scales as they are stored, so that each weight gets the nearest one there is.
    """
    kind = KINDS[name]
    grouped = x.reshape(len(x), kind.groups, -1)
    dmin, minimums = np.zeros(len(x), np.float16), np.zeros((len(x), kind.groups), np.int16)
    if kind.has_minimums:
        least = np.minimum(grouped.min(axis=-1), 0)
        span = np.maximum(grouped.max(axis=-1), 0) - least
        dmin, minimums = _quantise_scales(-least, kind)
        d, scales = _quantise_scales(span / np.float32(2**kind.bits - 1), kind)
    else:
        furthest = np.abs(grouped).argmax(axis=-1)[..., None]
        extremes = np.take_along_axis(grouped, furthest, axis=-1)[..., 0]
        d, scales = _quantise_scales(extremes / np.float32(-kind.offset), kind)
    actual = (d.astype(np.float32)[:, None] * scales.astype(np.float32))[..., None]
    least = (dmin.astype(np.float32)[:, None] * minimums.astype(np.float32))[..., None]
    steps = np.divide(grouped + least, actual, out=np.zeros_like(grouped), where=actual != 0)
    codes = (np.rint(steps) + np.float32(kind.offset)).clip(0, 2**kind.bits - 1)
    return pack(Fields(codes.astype(np.uint8).reshape(x.shape), d, scales, dmin, minimums), name)


def _quantise_scales(
    exact: Float32[np.ndarray, "n G"], kind: Kind
) -> tuple[Float16[np.ndarray, "n"], Int16[np.ndarray, "n G"]]:
    """d and integers in the range of the kind's scales, so that d times them is near `exact`.

    The one furthest from zero gets the end of the range: the lower one where there are negatives.
    """
    low, high = kind.scales
    furthest = np.take_along_axis(exact, np.abs(exact).argmax(axis=-1)[:, None], axis=-1)[:, 0]
    d = (furthest / np.float32(low or high)).astype(np.float16)
    unit = d.astype(np.float32)[:, None]
    steps = np.divide(exact, unit, out=np.zeros_like(exact), where=unit != 0)
    return d, np.rint(steps).clip(low, high).astype(np.int16)


def _cut(data: UInt8[np.ndarray, "n B"], *sizes: int) -> list[UInt8[np.ndarray, "n _"]]:
    """The fields of each block, which have these sizes."""
    parts = np.split(data, np.cumsum(sizes)[:-1], axis=-1)
    return [np.ascontiguousarray(part) for part in parts]


def _half(data: UInt8[np.ndarray, "n 2"]) -> Float16[np.ndarray, "n"]:
    return np.asarray(data.view(np.float16)[:, 0])


def _planes(data: UInt8[np.ndarray, "n B"], bits: int, size: int) -> UInt8[np.ndarray, "n 256"]:
    """Codes of runs of `size` bytes, each run its planes one after another."""
    return unpack_planes(data.reshape(len(data), -1, size), bits).reshape(len(data), BLOCK)


def _from_planes(
    codes: UInt8[np.ndarray, "n 256"], bits: int, size: int
) -> UInt8[np.ndarray, "n B"]:
    planes = codes.reshape(len(codes), -1, 8 // bits, size)
    return np.asarray(pack_planes(planes, bits).reshape(len(codes), -1))


def _scales_of_q3(small: UInt8[np.ndarray, "n 12"]) -> Int16[np.ndarray, "n 16"]:
    """6 bits each, less 32: four bits in two planes of 8 bytes, two bits in four planes of 4."""
    low = unpack_planes(small[:, :8], 4).reshape(-1, 16)
    high = unpack_planes(small[:, 8:], 2).reshape(-1, 16)
    return np.asarray((low | high << np.uint8(4)).astype(np.int16) - 32)


def _bytes_of_q3_scales(scales: Int16[np.ndarray, "n 16"]) -> UInt8[np.ndarray, "n 12"]:
    raw = (scales + 32).astype(np.uint8)
    low = pack_planes((raw & np.uint8(15)).reshape(-1, 2, 8), 4)
    high = pack_planes((raw >> 4).reshape(-1, 4, 4), 2)
    return np.concatenate([low, high], axis=-1)


def _scales_and_minimums(
    small: UInt8[np.ndarray, "n 12"],
) -> tuple[Int16[np.ndarray, "n 8"], Int16[np.ndarray, "n 8"]]:
    """They have 6 bits each. The first four scales and the first four minimums have a byte each,
    whose upper two bits belong to the last four; their lower four bits share the last four bytes.
    """
    first = (small[:, :8] & np.uint8(63)).reshape(-1, 2, 4)
    upper = (small[:, :8] >> 6).reshape(-1, 2, 4) << np.uint8(4)
    last = unpack_planes(small[:, 8:], 4) | upper
    both = np.concatenate([first, last], axis=-1).astype(np.int16)
    return both[:, 0], both[:, 1]


def _bytes_of_scales_and_minimums(
    scales: Int16[np.ndarray, "n 8"], minimums: Int16[np.ndarray, "n 8"]
) -> UInt8[np.ndarray, "n 12"]:
    both = np.stack([scales, minimums], axis=1).astype(np.uint8)
    first = both[..., :4] | both[..., 4:] >> 4 << np.uint8(6)
    last = pack_planes(both[..., 4:] & np.uint8(15), 4)
    return np.concatenate([first.reshape(-1, 8), last], axis=-1)
