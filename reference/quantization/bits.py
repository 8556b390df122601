"""Small codes in bytes and words: two ways that nearly all formats choose from.

A *stream* puts one code after another, from the lowest bit of the first word to the highest bit of
the last. So a code of 3 bits may begin in one word and end in the next. *Planes* put the first
codes of a group into the lowest bits of its bytes, the next ones into the bits above them, so that
a processor unpacks many codes with one shift and one mask.
"""

import numpy as np
from jaxtyping import Integer, UInt8


def unpack_stream(words: Integer[np.ndarray, "*rows W"], bits: int) -> UInt8[np.ndarray, "*rows n"]:
    """The codes of little-endian words along the last axis, as many whole ones as there are.

    >>> unpack_stream(np.array([0x21, 0x43], np.uint8), 4).tolist()  # 0x21: the low nibble is 1
    [1, 2, 3, 4]
    >>> unpack_stream(np.array([0b10_001_000], np.uint8), 3).tolist()  # two bits of a third
    [0, 1]
    """
    raw = np.ascontiguousarray(words).view(np.uint8)
    stream = np.unpackbits(raw, axis=-1, bitorder="little")
    count = stream.shape[-1] // bits
    each = stream[..., : count * bits].reshape(*stream.shape[:-1], count, bits)
    return np.packbits(each, axis=-1, bitorder="little")[..., 0]


def pack_stream(
    codes: UInt8[np.ndarray, "*rows n"], bits: int, word: np.dtype
) -> Integer[np.ndarray, "*rows W"]:
    """The opposite of `unpack_stream`; the last word is filled up with zeros.

    >>> pack_stream(np.array([1, 2, 3], np.uint8), 4, np.dtype(np.uint8)).tolist()
    [33, 3]
    """
    each = np.unpackbits(codes[..., None], axis=-1, count=bits, bitorder="little")
    stream = each.reshape(*codes.shape[:-1], codes.shape[-1] * bits)
    missing = -stream.shape[-1] % (8 * word.itemsize)
    stream = np.concatenate([stream, np.zeros((*stream.shape[:-1], missing), np.uint8)], axis=-1)
    return np.packbits(stream, axis=-1, bitorder="little").view(word)


def unpack_planes(data: UInt8[np.ndarray, "*rows n"], bits: int) -> UInt8[np.ndarray, "*rows P n"]:
    """The P = 8 / bits planes of the bytes, the one in the lowest bits first.

    >>> unpack_planes(np.array([0x21, 0x43], np.uint8), 4).tolist()
    [[1, 3], [2, 4]]
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return np.asarray((data[..., None, :] >> shifts) & np.uint8(2**bits - 1))


def pack_planes(planes: UInt8[np.ndarray, "*rows P n"], bits: int) -> UInt8[np.ndarray, "*rows n"]:
    """The opposite of `unpack_planes`.

    >>> pack_planes(np.array([[1, 3], [2, 4]], np.uint8), 4).tolist() == [0x21, 0x43]
    True
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return np.asarray(np.bitwise_or.reduce(planes << shifts, axis=-2))
