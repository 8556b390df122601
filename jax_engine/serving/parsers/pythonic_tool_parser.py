"""The parser of calls that are written in Python: `[search(query="x", limit=3), now()]`.

They need not be sound Python: nothing is evaluated, any word may name an argument, JSON's words are
known, and strings may hold line breaks. Calls as JSON are read, too.
"""

import ast
import json
import re
import unicodedata
from collections.abc import Callable
from typing import Any

from jax_engine.serving.parsers.json_tool_parsers import Llama3JsonToolParser
from jax_engine.serving.parsers.parser_base import Markers, Reading
from jax_engine.serving.parsers.tool_parser import SEPARATORS, ToolParser, json_text

MAX_LETTERS, MAX_NAME = 1 << 20, 256
_BEGINS = re.compile(r"\[\s*([^\W\d][\w.:-]*)?\s*")


class PythonicToolParser(Llama3JsonToolParser):
    """Lists of calls with named arguments, all of them literals; or calls as JSON."""

    def bare_calls(self, mark: str, pending: str) -> Reading[None]:
        """As `Llama3JsonToolParser.bare_calls`."""
        if mark == "{" or (yield from self.opens_list()):
            yield from super().bare_calls(mark, pending)
            return
        while mark == "[" and not (yield from self.opens_list()):
            text = yield from self._bracketed()
            calls = python_calls(text)
            if calls is None or not all(self.may_call(name) for name, _ in calls):
                self.emit(pending + text)
                return
            for call in calls:
                self.call(*call)
            pending = yield from self.space(SEPARATORS)
            mark = yield from self.next_char()
            self.give_back(mark)
        self.emit(pending)

    def _bracketed(self) -> Reading[str]:
        """Text up to the end of its first bracket, or up to where it can be no list of calls."""
        text, depth, is_call = "", 0, False
        while char := (yield from self.next_char()):
            text += char
            if is_call and char in "'\"":
                text += yield from self._rest_of_string(char)
            depth += (char in "[({") - (char in "])}")
            if not is_call:
                begun = _BEGINS.fullmatch(text.removesuffix("("))
                is_call = char == "(" and begun is not None and bool(begun[1])
                if is_call and begun is not None and not self.may_call(begun[1]):
                    break
                if begun is None or len(text) > MAX_NAME or (char == "(" and not is_call):
                    break
            if depth == 0 or len(text) > MAX_LETTERS:
                break
        return text

    def _rest_of_string(self, quote: str) -> Reading[str]:
        """Text up to the end of a string, of which the first quote was read."""
        second = yield from self.next_char()
        third = (yield from self.next_char()) if second == quote else ""
        if second != quote:
            self.give_back(second)
        elif third != quote:
            self.give_back(third)
            return second
        text = second + third if second == quote else ""
        end = quote * 3 if text else quote
        begin = len(text)
        while char := (yield from self.next_char()):
            text += char
            if char == "\\":
                text += yield from self.next_char()
            elif text.endswith(end, begin) or len(text) > MAX_LETTERS:
                break
        return text


FUNCTION_CALLS, FUNCTION_CALLS_END = "<function_calls>", "</function_calls>"


class Olmo3ToolParser(ToolParser):
    """Calls in Python between `<function_calls>` and `</function_calls>`, a line each."""

    begins = Markers([FUNCTION_CALLS])

    def _read(self) -> Reading[None]:
        while mark := (yield from self.until(self.begins)):
            text, ended = yield from self.text_before(FUNCTION_CALLS_END)
            is_whole = bool(ended) or not self.cut
            calls = python_calls(f"[{text}]") if is_whole and text.strip() else None
            if calls is None:
                self.emit(mark + text + ended)
            for call in calls or ():
                self.call(*call)


_SPACE = re.compile(r"\s*")
_BETWEEN = re.compile(r"[\s,;]*")
_NAME = re.compile(r"[^\W\d][\w.:-]*")
_KEY = re.compile(r"([^\W\d][\w.$-]*)\s*=(?!=)")
_WORD = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"([+-]?)\s*(\.?\d(?:[eE][+-]\d|[\w.])*)")
_STRING = re.compile(r"""([rRuU]?)('''|\"""|'|")(?P<text>(?:\\.|(?!\2)[^\\])*+)\2""", re.DOTALL)
_ESCAPE = re.compile(
    r"\\([0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|.)", re.DOTALL
)
_WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_LETTERS = {
    "\n": "", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n",
    "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip


def python_calls(text: str) -> list[tuple[str, str]] | None:
    """Names and arguments, as JSON text; None if the text is no list of calls."""
    try:
        return _PythonCalls(text.strip()).calls()
    except (ValueError, SyntaxError, KeyError, RecursionError, OverflowError):
        return None


def python_value(text: str) -> Any:
    """The value of a literal; raises what `python_calls` catches.

    >>> python_value("{'a': (1, True)}")
    {'a': [1, True]}
    """
    return _PythonCalls(text.strip()).value()


class _PythonCalls:
    """Descends into a text. All methods raise ValueError, or what `python_calls` catches."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def calls(self) -> list[tuple[str, str]]:
        self._need("[")
        found = [self._call()]
        while True:
            between = self._match(_BETWEEN)[0]
            if self._takes("]"):
                break
            if not between:
                raise ValueError("calls with nothing between them")
            found.append(self._call())
        if self._at < len(self._text):
            raise ValueError("text behind the calls")
        return found

    def value(self) -> Any:
        found = self._value()
        self._skip()
        if self._at < len(self._text):
            raise ValueError("text behind the value")
        return found

    def _call(self) -> tuple[str, str]:
        self._skip()
        name = self._match(_NAME)[0]
        self._need("(")
        arguments = dict[str, Any]()
        self._items(")", lambda: self._add(arguments, self._named()))
        return name, json_text(arguments)

    def _named(self) -> tuple[str, Any]:
        key = self._match(_KEY)[1]
        return key, self._value()

    def _add(self, found: dict[str, Any], item: tuple[str, Any]) -> None:
        if item[0] in found:
            raise ValueError("a name twice")
        found[item[0]] = item[1]

    def _items(self, end: str, read: Callable[[], None]) -> int:
        """Reads items with commas between and perhaps behind them, and `end`.

        Returns:
            the number of commas.
        """
        commas = 0
        while not self._takes(end):
            read()
            if not self._takes(","):
                self._need(end)
                break
            commas += 1
        return commas

    def _value(self) -> Any:
        self._skip()
        char = self._text[self._at : self._at + 1]
        if char in ("[", "("):
            return self._sequence()
        if char == "{":
            self._need("{")
            found = dict[str, Any]()
            self._items("}", lambda: self._add(found, self._entry()))
            return found
        if _STRING.match(self._text, self._at):
            return self._string()
        if _NUMBER.match(self._text, self._at):
            return self._number()
        return _WORDS[self._match(_WORD)[0]]

    def _sequence(self) -> Any:
        """A list, a tuple, or a value in parentheses."""
        found = list[Any]()
        is_list = self._takes("[")
        if not is_list:
            self._need("(")
        commas = self._items("]" if is_list else ")", lambda: found.append(self._value()))
        return found if is_list or commas or not found else found[0]

    def _entry(self) -> tuple[str, Any]:
        key = self._value()
        if isinstance(key, list | dict):
            raise ValueError("a key must be a word or a number")
        self._need(":")
        return key if isinstance(key, str) else json.dumps(key, allow_nan=False), self._value()

    def _string(self) -> str:
        parts = []
        while found := _STRING.match(self._text, self._at):  # neighbours are one string
            self._at = found.end()
            raw, text = found[1] in ("r", "R"), found["text"]
            parts.append(text if raw else _ESCAPE.sub(_unescaped, text))
            self._skip()
        return "".join(parts)

    def _number(self) -> int | float:
        sign, digits = self._match(_NUMBER).groups()
        value = ast.literal_eval(digits)
        if type(value) not in (int, float):
            raise ValueError("a number must be an integer or a float")
        number: int | float = -value if sign == "-" else value
        return number

    def _skip(self) -> None:
        self._match(_SPACE)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"no {pattern.pattern} at {self._at}")
        self._at = found.end()
        return found

    def _takes(self, mark: str) -> bool:
        self._skip()
        is_here = self._text.startswith(mark, self._at)
        self._at += len(mark) * is_here
        return is_here

    def _need(self, mark: str) -> None:
        if not self._takes(mark):
            raise ValueError(f"no {mark} at {self._at}")


def _unescaped(found: re.Match[str]) -> str:
    """What an escape stands for; as in Python, one that it does not know stands for itself."""
    code = found[1]
    if code in _LETTERS:
        return _LETTERS[code]
    if code[0] in "01234567":
        return chr(int(code, 8))
    if code[0] == "N" and len(code) > 1:
        return unicodedata.lookup(code[2:-1])
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code[0] in "NxuU":
        raise ValueError("an escape that is cut")
    return found[0]
