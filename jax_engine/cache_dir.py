"""Where this package keeps what it downloads and compiles."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """$JAX_ENGINE_CACHE, or jax-engine in the user's cache folder ($XDG_CACHE_HOME, ~/.cache)."""
    chosen = os.environ.get("JAX_ENGINE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jax-engine"
