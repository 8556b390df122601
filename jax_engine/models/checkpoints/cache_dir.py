"""Where this package keeps what it downloads and compiles: the folders of its caches."""

import os
from pathlib import Path

from cpu_kernels.compiling.user_cache import user_cache


def cache_dir() -> Path:
    """$JAX_ENGINE_CACHE, or jax-engine in the user's cache folder ($XDG_CACHE_HOME, ~/.cache)."""
    chosen = os.environ.get("JAX_ENGINE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return user_cache() / "jax-engine"


def kernels_dir() -> Path:
    """Where the CPU's kernels are kept: $NUMBA_CACHE_DIR, or a folder in the user's cache."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or user_cache() / "cpu-kernels")


def hub_dir() -> Path:
    """Where `huggingface_hub`, which takes long to import, keeps models."""
    for name, below in (("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if os.environ.get(name):
            return Path(os.environ[name], below).expanduser()
    return user_cache() / "huggingface" / "hub"
