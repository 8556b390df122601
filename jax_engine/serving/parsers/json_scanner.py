"""A scanner that reads a JSON object letter by letter, and says at once when it can be none.

A string may hold line breaks and other control characters: models write them.
"""

import re
from typing import Literal

Status = Literal["more", "done", "bad"]
MAX_DEPTH = 100
_SPACE = " \t\n\r"
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORDS = ("true", "false", "null")
_WORD_ENDS = ",}] \t\n\r"


class JsonObject:
    """The state of reading one object.

    Attributes:
        depth: how many objects and arrays are open.
    """

    def __init__(self) -> None:
        self._open: list[str] = []  # "{" or "["
        self._expect = "object"
        self._is_key = False
        self._word = ""
        self._digits = 0

    @property
    def depth(self) -> int:
        return len(self._open)

    def take(self, char: str) -> Status:
        """Reads the next letter. Nothing may follow "done" or "bad"."""
        good: bool = getattr(self, f"_{self._expect}")(char)
        if not good:
            return "bad"
        return "more" if self._open or self._expect == "object" else "done"

    def _object(self, char: str) -> bool:
        return char in _SPACE or (char == "{" and self._begin(char))

    def _begin(self, bracket: str) -> bool:
        self._open.append(bracket)
        self._expect = "first_key" if bracket == "{" else "first_value"
        return len(self._open) <= MAX_DEPTH

    def _first_key(self, char: str) -> bool:
        return self._end(char) or self._key(char)

    def _key(self, char: str) -> bool:
        return char in _SPACE or self._quote(char, is_key=True)

    def _quote(self, char: str, *, is_key: bool) -> bool:
        if char != '"':
            return False
        self._expect, self._is_key = "string", is_key
        return True

    def _string(self, char: str) -> bool:
        if char == "\\":
            self._expect = "escape"
        elif char == '"':
            self._expect = "colon" if self._is_key else "after"
        return True

    def _escape(self, char: str) -> bool:
        self._expect, self._digits = ("hex", 4) if char == "u" else ("string", 0)
        return char in '"\\/bfnrtu'

    def _hex(self, char: str) -> bool:
        self._digits -= 1
        if not self._digits:
            self._expect = "string"
        return char in "0123456789abcdefABCDEF"

    def _colon(self, char: str) -> bool:
        if char == ":":
            self._expect = "value"
        return char == ":" or char in _SPACE

    def _first_value(self, char: str) -> bool:
        return self._end(char) or self._value(char)

    def _value(self, char: str) -> bool:
        if char in _SPACE:
            return True
        if char in "{[":
            return self._begin(char)
        if self._quote(char, is_key=False):
            return True
        self._expect, self._word = "in_word", char
        return char in "-0123456789tfn"

    def _in_word(self, char: str) -> bool:
        if char in _WORD_ENDS:
            self._expect = "after"
            whole = self._word in _WORDS or _NUMBER.fullmatch(self._word)
            return bool(whole) and self._after(char)
        self._word += char
        is_word = any(one.startswith(self._word) for one in _WORDS)
        return is_word or (char in "0123456789+-.eE" and self._word[0] in "-0123456789")

    def _after(self, char: str) -> bool:
        if char == ",":
            self._expect = "key" if self._open[-1] == "{" else "value"
            return True
        return char in _SPACE or self._end(char)

    def _end(self, char: str) -> bool:
        if char not in "}]" or self._open[-1] != {"}": "{", "]": "["}[char]:
            return False
        self._open.pop()
        self._expect = "after"
        return True
