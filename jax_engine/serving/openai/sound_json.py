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
        containers = [one for one in layer if isinstance(one, dict | list)]
        if not containers:
            return None
        layer = [inner for one in containers for inner in _inside(one)]
    return f"must not be nested deeper than {MAX_DEPTH} levels"


def _inside(container: dict[str, Any] | list[Any]) -> list[Any]:
    """What may have a problem of its own: numbers have none, of which there may be many."""
    if isinstance(container, dict):
        return [*container, *container.values()]
    return [one for one in container if isinstance(one, str | dict | list)]


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
