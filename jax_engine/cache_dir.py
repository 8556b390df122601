"""Where this package keeps what it downloads and compiles."""

import os
from pathlib import Path

from cpu_kernels.compiling.user_cache import user_cache


def cache_dir() -> Path:
    """$JAX_ENGINE_CACHE, or jax-engine in the user's cache folder ($XDG_CACHE_HOME, ~/.cache)."""
    chosen = os.environ.get("JAX_ENGINE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return user_cache() / "jax-engine"
