"""What `quantization_config` says: fields that are checked, and patterns of modules' names."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from jax_engine.errors import ConfigError
from jax_engine.file_schema import checked, short

FIELD = "config.json: quantization_config"
MAX_PATTERN = 1000  # characters


def settings[T](raw: Mapping[str, Any], schema: type[T], place: str = "") -> T:
    """The fields of the whole, or of what stands at a place in it (".a"). Raises ConfigError."""
    return checked(raw, schema, FIELD + place)


def require(field: str, value: object, known: Collection[object]) -> None:
    """Raises ConfigError, which names the known values, if the field has another one."""
    if value not in known:
        raise unsupported(field, value, ", ".join(map(repr, known)))


def require_group(field: str, group_size: int) -> None:
    """Raises ConfigError unless it is -1, which is all inputs, or a number of them."""
    if group_size != -1 and not 1 <= group_size <= 2**31 - 1:
        raise unsupported(field, group_size, "-1, or from 1 on")


def unsupported(field: str, value: object, known: str) -> ConfigError:
    return ConfigError(f"{FIELD}.{field} {short(value)} is not supported; known: {known}.")


def pattern(field: str, text: str) -> re.Pattern[str]:
    """A regular expression of the configuration. Raises ConfigError if it is none."""
    try:
        if len(text) > MAX_PATTERN:
            raise ValueError(f"it has more than {MAX_PATTERN} characters")
        return re.compile(text)
    except (re.error, ValueError, RecursionError, OverflowError) as error:
        raise ConfigError(
            f"{FIELD}.{field} must be a regular expression, got {short(text)}: {error}."
        ) from None
