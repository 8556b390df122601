"""Examples that are spelled out of bytes: a draw for each number takes most of a search's time.

A record is a few bytes, and stands for one operation or one request, whatever the others are. A
smaller byte is a simpler number, and a record of zeros should stand for nothing, or for the
simplest there is: so examples are made smaller as well as those of a draw for each number.
"""

from collections.abc import Sequence
from itertools import batched

from hypothesis import strategies as st

AT_ONCE = 40  # bytes of a draw; more are drawn quicker, fewer are made smaller in fewer examples


class Numbers:
    """Reads a record's bytes as numbers; behind its end there are zeros."""

    def __init__(self, record: bytes) -> None:
        self._record, self._next = record, 0

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1: of one byte, or of as many as it takes."""
        start = self._next
        self._next = start + 1 if limit <= 256 else start + -(-(limit - 1).bit_length() // 8)
        return int.from_bytes(self._record[start : self._next]) % limit

    def among[Choice](self, choices: Sequence[Choice]) -> Choice:
        return choices[self.below(len(choices))]

    def yes(self) -> bool:
        return self.below(2) == 1

    def several(self, limit: int, most: int, least: int = 0) -> list[int]:
        """From `least` to `most` numbers."""
        count = least + self.below(most - least + 1)
        return [self.below(limit) for _ in range(count)]


def record(size: int) -> st.SearchStrategy[bytes]:
    """One record of so many bytes."""
    return st.binary(min_size=size, max_size=size)


def records(count: int, size: int) -> st.SearchStrategy[list[bytes]]:
    """So many records, several of them in one draw."""
    at_once = max(1, AT_ONCE // size)
    parts = [record(size * len(part)) for part in batched(range(count), at_once)]

    def cut(drawn: tuple[bytes, ...]) -> list[bytes]:
        return [part[start : start + size] for part in drawn for start in range(0, len(part), size)]

    return st.tuples(*parts).map(cut)
