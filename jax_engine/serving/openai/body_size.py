"""Counts the values of a JSON body before it is decoded.

Decoding and checking hold the event loop for a microsecond or so for each value, however short: a
body of 30 MB may have 15 million of them. Its bytes alone cost little. So values have a limit of
their own, and they are counted as the body comes, packet by packet.
"""

MAX_VALUES = 1 << 19
_STRUCTURE = b'",[{'
_REST = bytes(one for one in range(256) if one not in _STRUCTURE)


class ValueCount:
    """Counts what begins a value, outside of strings: commas and opening brackets.

    Attributes:
        count: so far. A body has at most one value more.
    """

    def __init__(self) -> None:
        self.count = 0
        self._in_string, self._escapes = False, b""

    def take(self, piece: bytes) -> None:
        """Goes on with the next bytes of the body."""
        data = self._escapes + piece
        tail = len(data) - len(data.rstrip(b"\\"))
        self._escapes = b"\\" * (tail % 2)  # what it escapes comes next
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = data.translate(None, _REST).split(b'"')
        self.count += sum(map(len, parts[self._in_string :: 2]))
        self._in_string ^= len(parts) % 2 == 0
