"""Matches regular expressions of an adapter's files without backtracking.

PEFT names modules by patterns, which come with the file. Python's `re` can take longer than the age
of the universe for some of thirty characters, and cannot be stopped. Here a pattern keeps the *set*
of places that it can have reached in a name, so that the time is bounded by a polynomial of both
lengths. What needs more than such a set is refused: references to groups, and looking around.
"""

import functools
import re
from collections.abc import Iterable
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from jax_engine.errors import ConfigError
from jax_engine.file_schema import short

MAX_CHARACTERS = 1 << 14
_NO_REPEATS = re.compile(r"\^?[\w.-]+")  # `re` takes such patterns in a time that is bounded, too
_SIMPLE = (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN, codes.AT)
_CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}
_PLACES = {
    codes.AT_BEGINNING: r"^",
    codes.AT_BEGINNING_STRING: r"\A",
    codes.AT_BOUNDARY: r"\b",
    codes.AT_NON_BOUNDARY: r"\B",
    codes.AT_END: r"$",
    codes.AT_END_STRING: r"\Z",
}


def matches(pattern: str, name: str, field: str) -> bool:
    """Whether the pattern matches the whole name, as `re.fullmatch` does.

    Args:
        field: the field of the adapter's configuration that has the pattern.

    Raises:
        ConfigError: it is no regular expression, is too long, or uses what is not supported.
    """
    try:
        return len(name) in _Match(name).after(_parsed(pattern), frozenset((0,)))
    except (re.error, RecursionError, OverflowError, _Unsupported) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(
            f"{field}: {short(pattern)} is not a supported pattern: {what}."
        ) from None


def matches_end(pattern: str, name: str, field: str) -> bool:
    """Whether the pattern matches the name, or its end behind a dot: PEFT's `rank_pattern`.

    Raises:
        ConfigError: as `matches`.
    """
    if _NO_REPEATS.fullmatch(pattern):
        return re.fullmatch(rf"(.*\.)?({pattern})", name) is not None
    matches(pattern, "", field)  # on its own, too: "a)|(b" is no pattern
    return matches(rf"(.*\.)?({pattern})", name, field)


class _Unsupported(Exception):
    pass


@functools.lru_cache(maxsize=4096)
def _parsed(pattern: str) -> Any:
    if len(pattern) > MAX_CHARACTERS:
        raise _Unsupported(f"it has {len(pattern)} characters, at most {MAX_CHARACTERS} are read")
    found = parser.parse(pattern)
    if found.state.flags & ~re.UNICODE.value:
        raise _Unsupported("flags are not supported")
    _check(found)
    return found


def _check(items: Iterable[tuple[Any, Any]]) -> None:
    """Raises _Unsupported for what a set of places cannot tell."""
    for code, value in items:
        if code is codes.BRANCH:
            for one in value[1]:
                _check(one)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            _check(value[2])
        elif code is codes.SUBPATTERN:
            if value[1] or value[2]:
                raise _Unsupported("flags are not supported")
            _check(value[3])
        elif code not in _SIMPLE:
            raise _Unsupported(f"{str(code).lower()} is not supported")


class _Match:
    """A pattern on its way through one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: dict[tuple[int, int], frozenset[int]] = {}  # of an item, from a place

    def after(self, items: Iterable[tuple[Any, Any]], places: frozenset[int]) -> frozenset[int]:
        """Where the items can end, one after another, that begin at one of the places."""
        for item in items:
            places = frozenset().union(*(self._from(item, place) for place in places))
        return places

    def _from(self, item: tuple[Any, Any], place: int) -> frozenset[int]:
        key = id(item), place
        if key not in self._known:
            self._known[key] = frozenset(self._ends(*item, place))
        return self._known[key]

    def _ends(self, code: Any, value: Any, place: int) -> Iterable[int]:
        if code is codes.BRANCH:
            here = frozenset((place,))
            return frozenset().union(*(self.after(one, here) for one in value[1]))
        if code is codes.SUBPATTERN:
            return self.after(value[3], frozenset((place,)))
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, items = value
            return self._repeated(int(least), int(most), items, place)
        if code is codes.AT:
            found = re.compile(_PLACES[value]).match(self._text, place)
            # With a start, ^ means the text's own beginning, as it should.
            return () if found is None else (place,)
        if place == len(self._text):
            return ()
        return (place + 1,) if _is_one(code, value, self._text[place]) else ()

    def _repeated(self, least: int, most: int, items: Any, place: int) -> frozenset[int]:
        """Where so many repetitions can end.

        As no item goes back, repetitions beyond the text's length add places or lose them no more.
        """
        longest = len(self._text) + 1
        places = frozenset((place,))
        for _ in range(min(least, longest)):
            places = self.after(items, places)
        found = places
        for _ in range(min(most - least, longest)):
            places = self.after(items, places) - found
            if not places:
                break
            found |= places
        return found


def _is_one(code: Any, value: Any, character: str) -> bool:
    """Whether an item of one character is this one."""
    if code is codes.LITERAL:
        return ord(character) == int(value)
    if code is codes.NOT_LITERAL:
        return ord(character) != int(value)
    if code is codes.ANY:
        return character != "\n"
    negated = value[0][0] is codes.NEGATE
    return negated != any(_is_in(kind, one, character) for kind, one in value[negated:])


def _is_in(code: Any, value: Any, character: str) -> bool:
    if code is codes.RANGE:
        return bool(value[0] <= ord(character) <= value[1])
    if code is codes.CATEGORY:
        return re.fullmatch(_CATEGORIES[value], character) is not None
    return ord(character) == int(value)
