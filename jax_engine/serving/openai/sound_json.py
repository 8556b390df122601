"""What JSON can say, but not all that reads it can take: great depth, and lone surrogates."""

from typing import Any

from jax_engine.checks import shown

MAX_DEPTH = 128  # objects and arrays inside of each other


def problem_of(value: Any) -> str | None:
    """Why a value cannot be taken; None: it can."""
    layer = [value]
    for _ in range(MAX_DEPTH + 1):
        for one in layer:
            if isinstance(one, str) and not _is_unicode(one):
                return f"must be valid Unicode, got a lone surrogate in {shown(one)}"
        layer = [inner for one in layer for inner in _inside(one)]
        if not layer:
            return None
    return f"must not be nested deeper than {MAX_DEPTH} levels"


def _inside(value: Any) -> list[Any]:
    """What may have a problem of its own in an object or an array: numbers have none."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list):
        return [one for one in value if isinstance(one, str | dict | list)]
    return []


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
