"""Codes of a few bits, out of bytes and words.

A *stream* puts one code after another from the lowest bit on, so that a code of 3 bits may begin in
one word and end in the next. *Whole words* have floor(32 / bits) codes each; the bits above are
unused. Both are alike for 2, 4 and 8 bits.
"""

import numpy as np


def stream_words(count: int, bits: int) -> int:
    """How many 32-bit words a stream of so many codes has."""
    return -(-count * bits // 32)


def unpack_stream(data: np.ndarray, bits: int, out: np.ndarray) -> None:
    """Writes the first codes of each row of a stream into `out` [rows, count].

    Args:
        data: bytes [rows, n], or integers, which are taken as their bytes.
    """
    raw = np.ascontiguousarray(data).view(np.uint8)
    missing = -raw.shape[1] % bits  # `bits` bytes have eight codes
    if missing:
        raw = np.pad(raw, ((0, 0), (0, missing)))
    eights = raw.reshape(len(raw), -1, bits)
    for place in range(min(8, out.shape[1])):
        here = out[:, place::8]
        byte, shift = divmod(place * bits, 8)
        code = eights[:, : here.shape[1], byte] >> np.uint8(shift)
        if shift + bits > 8:
            code |= eights[:, : here.shape[1], byte + 1] << np.uint8(8 - shift)
        here[...] = code & np.uint8(2**bits - 1)


def unpack_words(words: np.ndarray, bits: int, out: np.ndarray) -> None:
    """Writes the first codes of each row of whole words [rows, n] into `out` [rows, count]."""
    in_word = 32 // bits
    for place in range(min(in_word, out.shape[1])):
        here = out[:, place::in_word]
        shifted = words[:, : here.shape[1]].view(np.uint32) >> np.uint32(place * bits)
        here[...] = shifted & np.uint32(2**bits - 1)
