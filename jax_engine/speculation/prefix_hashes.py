"""A hash of each prefix of a sequence, which tells what a slot of a KV cache holds.

The key and the value of a position follow from all tokens up to it. So two slots with the same hash
hold the same, whichever sequence they were computed for. The hash of a prefix is a polynomial in
its tokens, modulo 2^64: a new token adds one term, and NumPy adds many at once.
"""

import numpy as np
from jaxtyping import UInt64

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that its powers never run out
_MIX, _SHIFT = np.uint64(0xBF58476D1CE4E5B9), np.uint64(29)

type Hashes = UInt64[np.ndarray, " N"]


class PrefixHashes:
    """The hashes of one sequence, which grows.

    Args:
        salt: Sequences of other salts have other hashes.

    Attributes:
        known: [N] The hash of its first i + 1 tokens, for the N tokens that it was given so far.
    """

    def __init__(self, salt: str | None = None) -> None:
        self._before = np.uint64(0 if salt is None else hash(salt) % 2**64)
        self._array = np.zeros(256, np.uint64)
        self.known: Hashes = self._array[:0]

    def upto(self, token_ids: list[int]) -> Hashes:
        """Takes the tokens behind those that it knows, and returns the hashes of all prefixes."""
        length, known = len(token_ids), len(self.known)
        if length > len(self._array):
            longer = np.zeros(2 * length, np.uint64)
            longer[:known] = self.known
            self._array = longer
        self._array[known:length] = self.beyond(token_ids[known:])
        self.known = self._array[:length]
        return self.known

    def cut(self, length: int) -> None:
        """Forgets the tokens behind the first `length`: others come in their place."""
        self.known = self._array[:length]

    def beyond(self, token_ids: list[int]) -> Hashes:
        """The hashes of longer prefixes, which end in these tokens; they are not kept."""
        start = len(self.known)
        tokens = np.array(token_ids, np.uint64) + np.uint64(1)
        tokens = (tokens * _MIX) ^ (tokens * _MIX >> _SHIFT)
        terms = tokens * _powers(start + len(token_ids))[start:]
        terms[:1] += self.known[-1] if start else self._before
        sums: Hashes = np.cumsum(terms, dtype=np.uint64)
        return sums


_table = np.ones(1, np.uint64)


def _powers(count: int) -> Hashes:
    """The first powers of the factor."""
    global _table
    if count > len(_table):
        factors = np.full(2 * count, _FACTOR)
        factors[0] = 1
        _table = np.cumprod(factors, dtype=np.uint64)
    return _table[:count]
