"""Checks of the values that users give: a typed error names the field, the value and the limit.

Numbers have ranges (`check_integer`, `check_number`). Types are checked against the annotations of
the dataclass that takes the values (`check_types`): a field's annotation alone declares its type,
and all parameters and settings are checked that way. NumPy's numbers and arrays are accepted as
Python's, tuples and sets as lists.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields
from difflib import get_close_matches
from enum import Enum
from functools import cache, wraps
from math import inf, isfinite
from numbers import Real
from operator import index
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from jax_engine.errors import InvalidRequestError, JaxEngineError


def shown(value: object) -> str:
    """A value in a message: short, and whatever it is."""
    try:
        text = repr(value).encode("utf-8", "backslashreplace").decode()
    except Exception:  # a number of too many digits, or a broken __repr__
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def printable(error: Exception) -> str:
    """What an exception says, with nothing in it that cannot be written."""
    return str(error).encode("utf-8", "backslashreplace").decode()


def check_integer(
    name: str, value: object, low: int, high: int | None = None, *, note: str = ""
) -> None:
    """
    Raises:
        InvalidRequestError: Not an integer (NumPy's are fine), or outside of [low, high].
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidRequestError(f"{name} must be an integer, got {shown(value)}") from None
    if number < low or (high is not None and number > high):
        limit = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise InvalidRequestError(f"{name} must be {limit}{note}, got {shown(number)}")


def check_number(
    name: str,
    value: object,
    low: float | None = None,
    high: float | None = None,
    *,
    open_low: bool = False,
) -> None:
    """
    Raises:
        InvalidRequestError: Not a finite number, or outside of [low, high].
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise InvalidRequestError(f"{name} must be a number, got {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = inf
    too_low = low is not None and (number <= low if open_low else number < low)
    if not isfinite(number) or too_low or (high is not None and number > high):
        bracket = "(" if open_low else "["
        limit = f"in {bracket}{low}, {'inf)' if high is None else f'{high}]'}"
        raise InvalidRequestError(
            f"{name} must be {'finite' if low is None else limit}, got {shown(value)}"
        )


_WORDS = {
    bool: ("True or False", "booleans"),
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    NoneType: ("None", "None"),
}


class _Mismatch(Exception):
    """The wrong part of a value, its place (such as "[3]"), and what it must be."""

    def __init__(self, value: object, expected: str, where: str = "") -> None:
        self.value, self.expected, self.where = value, expected, where


def check_types(owner: Any, error: type[JaxEngineError], prefix: str = "") -> None:
    """Converts each field of a dataclass to its annotated type.

    Args:
        prefix: Put before each name in messages.

    Raises:
        JaxEngineError: An `error`, if a field cannot be converted; with its name, its value
            and what is expected.
    """
    for name, kind, default in _annotations(type(owner)):  # type: ignore[arg-type]
        value = getattr(owner, name)
        if value is default:  # most fields: a request has forty
            continue
        try:
            converted = _convert(value, kind)
        except _Mismatch as wrong:
            raise error(
                f"{prefix}{name}{wrong.where} must be {wrong.expected}, got {shown(wrong.value)}"
            ) from None
        if converted is not value:
            object.__setattr__(owner, name, converted)  # `owner` may be frozen


def named_fields[T](error: type[JaxEngineError]) -> Callable[[type[T]], type[T]]:
    """A class decorator: an unknown keyword raises `error`, which suggests the nearest field."""

    def decorate(cls: type[T]) -> type[T]:
        original: Callable[..., None] = cls.__init__
        known = [one.name for one in fields(cls) if one.init]  # type: ignore[arg-type]

        @wraps(original)
        def init(self: Any, *args: Any, **given: Any) -> None:
            unknown = given.keys() - known
            if unknown and type(self) is cls:
                name = sorted(unknown)[0]
                raise error(f"{name} is not a field of {cls.__name__}{suggestion(name, known)}")
            original(self, *args, **given)

        cls.__init__ = init  # type: ignore[method-assign]
        return cls

    return decorate


def suggestion(name: str, known: Sequence[str]) -> str:
    """The end of a message: the nearest known name, or all of them."""
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f" (known: {', '.join(known)})"


@cache
def _annotations(cls: type) -> list[tuple[str, Any, Any]]:
    hints = get_type_hints(cls)
    return [(one.name, hints[one.name], one.default) for one in fields(cls)]


def _convert(value: Any, kind: Any) -> Any:
    if kind is Any:
        return value
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _one_kind_of(value, get_args(kind))
    if origin is Literal:
        choices = get_args(kind)
        if not any(type(value) is type(one) and value == one for one in choices):
            raise _Mismatch(value, describe(kind))
        return value
    if origin is list:
        return _list(value, kind)
    if origin in (dict, Mapping):
        return _mapping(value, kind)
    if origin is Callable:
        if not callable(value):
            raise _Mismatch(value, describe(kind))
        return value
    return _SCALARS.get(kind, _instance)(value, kind)


def _one_kind_of(value: Any, kinds: tuple[Any, ...]) -> Any:
    """Converts the value to the first of the kinds that accepts it."""
    if value is None and NoneType in kinds:
        return None
    inner: _Mismatch | None = None
    for kind in kinds:
        try:
            return _convert(value, kind)
        except _Mismatch as wrong:
            # An error inside the value says more than that it is none of the kinds
            says_more = wrong.value is not value or wrong.expected != describe(kind)
            if says_more and inner is None:
                inner = wrong
    raise inner or _Mismatch(value, " or ".join(describe(one) for one in kinds))


def _list(value: Any, kind: Any) -> list[Any]:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | AbstractSet):
        raise _Mismatch(value, describe(kind))
    (item,) = get_args(kind)
    converted = [_inside(one, item, i) for i, one in enumerate(value)]
    same = isinstance(value, list) and all(
        one is before for one, before in zip(converted, value, strict=True)
    )
    return value if same else converted  # type: ignore[return-value]


def _mapping(value: Any, kind: Any) -> Any:
    if not isinstance(value, Mapping):
        raise _Mismatch(value, describe(kind))
    key_kind, item = get_args(kind)
    for key, one in value.items():
        _inside(key, key_kind, key)
        _inside(one, item, key)
    return value


def _inside(value: Any, kind: Any, index: object) -> Any:
    try:
        return _convert(value, kind)
    except _Mismatch as wrong:
        raise _Mismatch(wrong.value, wrong.expected, f"[{shown(index)}]{wrong.where}") from None


def _boolean(value: Any, kind: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise _Mismatch(value, describe(kind))
    return bool(value)


def _integer(value: Any, kind: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = index(value)
    except TypeError:
        raise _Mismatch(value, describe(kind)) from None
    if not -(2**63) <= number < 2**64:
        raise _Mismatch(value, "an integer of 64 bits")
    return number


def _number(value: Any, kind: Any) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | Real):
            raise TypeError
        number = float(value)
    except (TypeError, OverflowError):
        raise _Mismatch(value, describe(kind)) from None
    return value if isinstance(value, int | float) else number


def _text(value: Any, kind: Any) -> str:
    if not isinstance(value, str):
        raise _Mismatch(value, describe(kind))
    try:
        value.encode()
    except UnicodeEncodeError as error:
        expected = f"valid Unicode (there is a lone surrogate at character {error.start})"
        raise _Mismatch(value, expected) from None
    return value


def _none(value: Any, kind: Any) -> None:
    if value is not None:
        raise _Mismatch(value, describe(kind))


def _instance(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise _Mismatch(value, describe(kind))
    return value


_SCALARS: dict[Any, Callable[[Any, Any], Any]] = {
    bool: _boolean,
    int: _integer,
    float: _number,
    str: _text,
    NoneType: _none,
}


def describe(kind: Any) -> str:
    """What a field of this annotation must be, in words."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in _WORDS:
        return _WORDS[kind][0]
    if origin in (Union, UnionType):
        return " or ".join(describe(one) for one in args)
    if origin is Literal:
        return f"one of {', '.join(map(repr, args))}"
    if origin is list:
        return f"a list of {_WORDS[args[0]][1] if args[0] in _WORDS else describe(args[0])}"
    if origin in (dict, Mapping):
        return "a dict"
    if origin is Callable:
        return "callables"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(str(one) for one in kind)}"
    return str(kind.__name__)
