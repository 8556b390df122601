"""`hf_overrides`: edits of config.json by the user."""

import copy
from collections.abc import Mapping
from typing import Any

from jax_engine.config import HfOverrides
from jax_engine.errors import ConfigError


def overridden(raw: dict[str, Any], overrides: HfOverrides | None) -> dict[str, Any]:
    """The fields of config.json after the overrides; nested dicts are merged.

    Raises:
        ConfigError: A function fails, or does not return a dict.
    """
    if overrides is None:
        return raw
    if isinstance(overrides, Mapping):
        merged = dict(raw)
        for name, value in overrides.items():
            old = raw.get(name)
            if isinstance(value, Mapping) and isinstance(old, dict):
                value = overridden(old, value)
            merged[name] = value
        return merged
    try:
        changed = overrides(copy.deepcopy(raw))
    except Exception as error:  # the user's own code
        raise ConfigError(f"hf_overrides raised {error!r} for the fields of config.json") from error
    if not isinstance(changed, dict):
        raise ConfigError(
            "hf_overrides must return the dict of config.json's fields, got "
            f"{type(changed).__name__}"
        )
    return changed
