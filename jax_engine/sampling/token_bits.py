"""Token masks as bits, 32 to a word, in the form that the host sends to the sampler."""

from collections.abc import Iterable

import numpy as np

ALL_TOKENS = np.uint32(0xFFFFFFFF)  # one word of a mask that allows all tokens


def num_words(vocab_size: int) -> int:
    """Number of uint32 words that hold one bit a token."""
    return -(-vocab_size // 32)


def token_bits(token_ids: Iterable[int], vocab_size: int) -> np.ndarray:
    """uint32 [words] with these tokens' bits set: token t is bit t % 32 of word t // 32."""
    bits = np.zeros(num_words(vocab_size), np.uint32)
    ids = np.fromiter(token_ids, np.int64)
    np.bitwise_or.at(bits, ids // 32, np.uint32(1) << (ids % 32).astype(np.uint32))
    return bits


def as_booleans(bits: np.ndarray, vocab_size: int) -> np.ndarray:
    """Converts one row of bits to bool [V]."""
    # Little-endian bytes, whatever the machine's own byte order.
    octets = np.unpackbits(bits.astype("<u4").view(np.uint8), bitorder="little")
    return octets[:vocab_size].astype(bool)
