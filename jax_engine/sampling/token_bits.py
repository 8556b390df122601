"""Sets of tokens as bits, 32 to a word: how masks travel from the host to the sampler."""

from collections.abc import Iterable

import numpy as np

ALL_TOKENS = np.uint32(0xFFFFFFFF)  # a word of a row that may draw any token


def num_words(vocab_size: int) -> int:
    """uint32 words that have a bit for each token."""
    return -(-vocab_size // 32)


def token_bits(token_ids: Iterable[int], vocab_size: int) -> np.ndarray:
    """uint32 [words] with these tokens' bits set: token t is bit t % 32 of word t // 32."""
    bits = np.zeros(num_words(vocab_size), np.uint32)
    ids = np.fromiter(token_ids, np.int64)
    np.bitwise_or.at(bits, ids // 32, np.uint32(1) << (ids % 32).astype(np.uint32))
    return bits


def as_booleans(bits: np.ndarray, vocab_size: int) -> np.ndarray:
    """bool [V] of one row of bits."""
    # Bytes of a word from the low one on, whatever the machine's own order.
    octets = np.unpackbits(bits.astype("<u4").view(np.uint8), bitorder="little")
    return octets[:vocab_size].astype(bool)
