"""JAX's settings that a thread has for itself, and that the engine's thread does not see."""

from functools import cache
from typing import Any

import jax

from jax_engine.checks import shown
from jax_engine.errors import ConfigError


def jax_settings() -> dict[str, Any]:
    """All settings of JAX as this thread sees them: within `with jax.disable_jit()`, say."""
    return {name: getattr(jax.config, name) for name in _names()}


def check_jax_settings(given: dict[str, Any]) -> None:
    """
    Args:
        given: `jax_settings` of another thread.

    Raises:
        ConfigError: They are not this thread's.
    """
    for name, own in jax_settings().items():
        if given[name] != own:
            raise ConfigError(
                f"{name} is {shown(given[name])} in the thread that calls LLM and {shown(own)} in "
                "the engine's own thread, which computes all calls' steps: leave the context "
                f"manager, or set it for all threads, jax.config.update({name!r}, ..)"
            )


@cache
def _names() -> list[str]:
    return [name for name in jax.config.values if hasattr(jax.config, name)]
