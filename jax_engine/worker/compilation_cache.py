"""JAX's persistent compilation cache, on by default, so that a second start compiles nothing."""

import hashlib
import os
import platform
from pathlib import Path

import jax
from jaxlib.version import __version__ as jaxlib_version

from jax_engine.cache_dir import cache_dir


def enable_compilation_cache() -> Path | None:
    """Points JAX at a folder in the user's cache, unless the user has chosen one or turned it off.

    The folder's name holds what JAX's own key leaves out: programs compiled for one CPU's
    instructions may crash on another's that shares the home folder.
    """
    if jax.config.jax_compilation_cache_dir or not jax.config.jax_enable_compilation_cache:
        return None
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return None
    folder = cache_dir() / "xla" / f"{jaxlib_version}-{_machine_key()}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    return folder


def _machine_key() -> str:
    text = platform.machine() + platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        wanted = ("flags", "Features", "model name")
        lines = cpuinfo.read_text(errors="replace").splitlines()
        text += "".join(sorted({line for line in lines if line.startswith(wanted)}))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
