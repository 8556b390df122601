"""GGUF's simple blocks: 32 weights that share a scale, and some a minimum, too.

A block is a run of bytes: the scale d in float16; the minimum m in float16 (Q4_1, Q5_1); the fifth
bits of the 32 codes, four bytes (Q5_0, Q5_1); then the codes, 4 bits each in two planes (element i
below element i + 16), or 8 bits each (Q8_0). A weight is d (code - offset), or d code + m, or d
times an entry of a table (IQ4_NL).

The layouts are those of `block_q4_0` to `block_q8_0` and `block_iq4_nl` in ggml's `ggml-common.h`;
the package `gguf` has the same in Python (`gguf.quants`), and the tests compare every bit with it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float16, Float32, UInt8

from reference.quantization.bits import pack_planes, unpack_planes

BLOCK = 32
IQ4_NL = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)


class Kind(NamedTuple):
    """A kind of block: bits of a code, what is taken off it, and whether there is a minimum."""

    bits: int
    offset: int
    has_minimum: bool = False

    @property
    def num_bytes(self) -> int:
        return 2 + 2 * self.has_minimum + BLOCK * self.bits // 8


KINDS = {
    "Q4_0": Kind(4, 8),
    "Q4_1": Kind(4, 0, has_minimum=True),
    "Q5_0": Kind(5, 16),
    "Q5_1": Kind(5, 0, has_minimum=True),
    "Q8_0": Kind(8, 128),
    "IQ4_NL": Kind(4, 0),
}


class Fields(NamedTuple):
    """What blocks hold: codes from 0 to 2^bits - 1, and float16 numbers (m is zero without one)."""

    codes: UInt8[np.ndarray, "n 32"]
    d: Float16[np.ndarray, "n"]
    m: Float16[np.ndarray, "n"]


def unpack(data: UInt8[np.ndarray, "n B"], name: str) -> Fields:
    """The fields of n blocks.

    >>> block = np.frombuffer(np.float16(0.5).tobytes() + bytes([0x98] * 16), np.uint8)
    >>> codes, d, m = unpack(block[None], "Q4_0")
    >>> codes[0, 0].item(), codes[0, 16].item(), d.tolist()
    (8, 9, [0.5])
    """
    kind = KINDS[name]
    d, rest = _float16(data), data[:, 2:]
    m = np.zeros_like(d)
    if kind.has_minimum:
        m, rest = _float16(rest), rest[:, 2:]
    if kind.bits == 8:
        return Fields(rest ^ np.uint8(128), d, m)  # of a signed byte, code - 128
    codes = unpack_planes(rest[:, -16:], 4).reshape(-1, BLOCK)
    if kind.bits == 5:
        codes = codes | np.unpackbits(rest[:, :4], axis=-1, bitorder="little") << np.uint8(4)
    return Fields(codes, d, m)


def pack(fields: Fields, name: str) -> UInt8[np.ndarray, "n B"]:
    """The opposite of `unpack`."""
    kind = KINDS[name]
    parts = [bytes_of(fields.d)]
    if kind.has_minimum:
        parts.append(bytes_of(fields.m))
    if kind.bits == 8:
        return np.concatenate([*parts, fields.codes ^ np.uint8(128)], axis=-1)
    if kind.bits == 5:
        parts.append(np.packbits(fields.codes >> 4, axis=-1, bitorder="little"))
    nibbles = (fields.codes & np.uint8(15)).reshape(-1, 2, 16)
    return np.concatenate([*parts, pack_planes(nibbles, 4)], axis=-1)


def decode(data: UInt8[np.ndarray, "n B"], name: str) -> Float32[np.ndarray, "n 32"]:
    """The weights of n blocks, in float32 as ggml computes them.

    >>> block = np.frombuffer(np.float16(0.5).tobytes() + bytes([0x98] * 16), np.uint8)
    >>> weights = decode(block[None], "Q4_0")
    >>> weights[0, 0].item(), weights[0, 16].item()
    (0.0, 0.5)
    """
    codes, d, m = unpack(data, name)
    levels = IQ4_NL[codes] if name == "IQ4_NL" else codes - np.float32(KINDS[name].offset)
    weights = d.astype(np.float32)[:, None] * levels
    return weights + m.astype(np.float32)[:, None] if KINDS[name].has_minimum else weights


def quantise(x: Float32[np.ndarray, "n 32"], name: str) -> UInt8[np.ndarray, "n B"]:
    """Blocks near x: the scale from the extremes of a block, then the nearest code, ties to even.

    As ggml does, codes are found with the scale before it is rounded to float16. With an offset,
    the number furthest from zero gets the lowest code, since there is one more below zero than
    above; Q8_0 leaves that one out.

    >>> x = 127 * np.linspace(0.0, 1.0, 32, dtype=np.float32)[None]
    >>> decode(quantise(x, "Q8_0"), "Q8_0")[0, -3:].tolist()
    [119.0, 123.0, 127.0]
    """
    kind = KINDS[name]
    furthest = np.take_along_axis(x, np.abs(x).argmax(axis=-1)[:, None], axis=-1)
    lowest = np.zeros_like(furthest)
    if name == "IQ4_NL":
        scale = furthest / IQ4_NL[0]
        distances = np.abs(IQ4_NL - (x * _inverse(scale))[..., None])
        codes = distances.argmin(axis=-1).astype(np.uint8)
        return pack(Fields(codes, _halves(scale), _halves(lowest)), name)
    if kind.has_minimum:
        lowest = x.min(axis=-1, keepdims=True)
        scale = (x.max(axis=-1, keepdims=True) - lowest) / np.float32(2**kind.bits - 1)
    elif kind.bits == 8:
        scale = np.abs(furthest) / np.float32(127)
    else:
        scale = furthest / np.float32(-kind.offset)
    codes = np.rint((x - lowest) * _inverse(scale)) + np.float32(kind.offset)
    codes = codes.clip(0, 2**kind.bits - 1).astype(np.uint8)
    return pack(Fields(codes, _halves(scale), _halves(lowest)), name)


def bytes_of(numbers: Float16[np.ndarray, "n"]) -> UInt8[np.ndarray, "n 2"]:
    """Float16 numbers as they stand in a block."""
    return np.ascontiguousarray(numbers)[:, None].view(np.uint8)


def _float16(data: UInt8[np.ndarray, "n B"]) -> Float16[np.ndarray, "n"]:
    """The number in the first two bytes of each block."""
    return np.ascontiguousarray(data[:, :2]).view(np.float16)[:, 0]


def _halves(numbers: Float32[np.ndarray, "n 1"]) -> Float16[np.ndarray, "n"]:
    return numbers[:, 0].astype(np.float16)


def _inverse(scale: Float32[np.ndarray, "n 1"]) -> Float32[np.ndarray, "n 1"]:
    """1 / scale, and 0 for a block of zeros."""
    return np.asarray(np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0))
