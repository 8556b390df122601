"""What JSON can say, but not all that reads it can take: great depth, and lone surrogates."""

from typing import Any

from jax_engine.checks import shown

MAX_DEPTH = 128  # objects and arrays inside of each other


def problem_of(value: Any) -> str | None:
    """Why a value cannot be taken; None: it can."""
    layer = [value]
    for _ in range(MAX_DEPTH + 1):
        containers: list[Any] = []
        for one in layer:  # of which there may be many
            kind = type(one)
            if kind is list or kind is dict:
                containers.append(one)
            elif kind is str and not _is_unicode(one):
                return f"must be valid Unicode, got a lone surrogate in {shown(one)}"
        if not containers:
            return None
        layer = []
        for one in containers:
            layer += one
            if type(one) is dict:
                layer += one.values()
    return f"must not be nested deeper than {MAX_DEPTH} levels"


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
