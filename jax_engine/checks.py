"""Checks of numbers that users give: a typed error names the field, the value and the limit."""

from math import isfinite
from numbers import Real

from jax_engine.errors import InvalidRequestError


def check_integer(
    name: str, value: object, low: int, high: int | None = None, *, note: str = ""
) -> None:
    """
    Raises:
        InvalidRequestError: Not an integer (NumPy's are fine), or outside of [low, high].
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidRequestError(f"{name} must be an integer, got {value!r}")
    number = int(value.__index__())
    if number < low or (high is not None and number > high):
        limit = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise InvalidRequestError(f"{name} must be {limit}{note}, got {number}")


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
        raise InvalidRequestError(f"{name} must be a number, got {value!r}")
    number = float(value)
    too_low = low is not None and (number <= low if open_low else number < low)
    if not isfinite(number) or too_low or (high is not None and number > high):
        bracket = "(" if open_low else "["
        limit = f"in {bracket}{low}, {'inf)' if high is None else f'{high}]'}"
        raise InvalidRequestError(
            f"{name} must be {'finite' if low is None else limit}, got {value!r}"
        )
