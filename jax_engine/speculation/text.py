"""The tokens of a sequence as an array, and places in an array of tokens."""

from typing import NamedTuple

import numpy as np

NONE = -1  # where there is no token


class Text:
    """The tokens of a sequence as an array, which grows by what is new.

    Attributes:
        tokens: All that it was given so far.
    """

    def __init__(self) -> None:
        self._array = np.zeros(256, np.int32)
        self.tokens = self._array[:0]

    def upto(self, token_ids: list[int]) -> np.ndarray:
        length, known = len(token_ids), len(self.tokens)
        if length > len(self._array):
            longer = np.zeros(2 * length, np.int32)
            longer[:known] = self.tokens
            self._array = longer
        self._array[known:length] = token_ids[known:]
        self.tokens = self._array[:length]
        return self.tokens


class Places(NamedTuple):
    """Places between two tokens of a text.

    Attributes:
        array: The text's token at position p is `array[p % len(array)]`.
        first, end: The text has the positions first .. end - 1.
        at: [N] Positions of the tokens behind the places.
    """

    array: np.ndarray
    first: int
    end: int
    at: np.ndarray

    def before(self, count: int) -> np.ndarray:
        """[N, count] The tokens before each place, the nearest first; `NONE` before the text."""
        positions = self.at[:, None] - 1 - np.arange(count)
        return np.where(positions >= self.first, self.array.take(positions, mode="wrap"), NONE)

    def after(self, count: int) -> np.ndarray:
        """[N, count] The tokens behind each place; `NONE` behind the text."""
        positions = self.at[:, None] + np.arange(count)
        return np.where(positions < self.end, self.array.take(positions, mode="wrap"), NONE)
