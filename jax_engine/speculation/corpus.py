"""The texts of earlier requests, and where in them some tokens stood.

The newest texts are kept in a ring of tokens. For each length n of a key, each place is linked to
the one before it whose last n tokens have the same hash. So memory does not grow past 30 MB, a
token takes a microsecond or two to add, and a look-up follows one chain.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from jax_engine.speculation.text import NONE, Places

SIZE = 2**20  # tokens that are kept
HEADS = 2**18  # chains of each key length
DIGITS = 12  # of a digest


class Corpus:
    """The newest texts, of at most `SIZE` tokens together.

    Args:
        num_texts: How many are kept at most, at least 1.
        key_lengths: How many tokens `places` is asked for.
    """

    def __init__(self, num_texts: int, key_lengths: Sequence[int]) -> None:
        self._num_texts = num_texts
        self._starts: deque[int] = deque()
        self._end = 1  # position 0 ends each chain
        self._ring = np.zeros(SIZE, np.int32)
        self._chains = {n: _Chains() for n in key_lengths}

    def add(self, text: np.ndarray, adapter: str | None = None) -> None:
        """Adds a text, of which it keeps the last half `SIZE`; the oldest ones make room.

        Args:
            adapter: Whose text it is: only the same adapter finds it.
        """
        tokens, start = text[-SIZE // 2 :].tolist(), self._end
        self._starts.append(start)
        self._end += len(tokens) + 1  # a gap, where no text goes on into the next
        while len(self._starts) > self._num_texts or self._end - self._starts[0] > SIZE:
            self._starts.popleft()
        self._ring[np.arange(start, self._end) % SIZE] = [*tokens, NONE]
        own = _own_part(adapter)
        for n, chains in self._chains.items():
            for i in range(n, len(tokens)):
                chains.add((*own, *tokens[i - n : i]), start + i)

    def places(self, key: tuple[int, ...], most: int, adapter: str | None = None) -> Places:
        """The newest places, at most `most`, behind these tokens or others of the same hash.

        A token of the same text stands behind each of them. The newest comes first.
        """
        first = self._starts[0] if self._starts else self._end
        newest = self._chains[len(key)].newest((*_own_part(adapter), *key), first, most)
        at = np.fromiter(newest, np.int64)
        return Places(self._ring, first, self._end, at)


def _own_part(adapter: str | None) -> tuple[int, ...]:
    """What an adapter's keys begin with. Adapters share the ring, and chains by chance alone."""
    return () if adapter is None else (int(adapter[:DIGITS], 16),)


class _Chains:
    """Places by the hash of the tokens before them."""

    def __init__(self) -> None:
        # Views, since NumPy's own way to a single number is slow
        self._newest = memoryview(np.zeros(HEADS, np.int64))
        self._earlier = memoryview(np.zeros(SIZE, np.int64))

    def add(self, key: tuple[int, ...], position: int) -> None:
        chain = hash(key) % HEADS
        self._earlier[position % SIZE] = self._newest[chain]
        self._newest[chain] = position

    def newest(self, key: tuple[int, ...], first: int, most: int) -> Iterator[int]:
        position = self._newest[hash(key) % HEADS]
        for _ in range(most):
            if position < first:
                return
            yield position
            position = self._earlier[position % SIZE]
