"""Checks of numbers that users give: a typed error names the field, the value and the limit."""

from math import inf, isfinite
from numbers import Real
from operator import index

from jax_engine.errors import InvalidRequestError


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
