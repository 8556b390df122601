"""JAX's persistent compilation cache, on by default, so that a second start compiles nothing."""

import hashlib
import logging
import os
import platform
import tempfile
from pathlib import Path

import jax
from jaxlib.version import __version__ as jaxlib_version

from jax_engine.models.checkpoints.cache_dir import cache_dir

logger = logging.getLogger("jax_engine")


def enable_compilation_cache() -> Path | None:
    """Points JAX at a folder in the user's cache, unless the user has chosen one or turned it off.

    The folder's name holds a hash of the CPU's features, which JAX's own key leaves out: a program
    compiled for one CPU may crash on another that shares the home folder.

    A read-only folder is still used for reading.

    Returns:
        The folder, or None where nothing was set.
    """
    if jax.config.jax_compilation_cache_dir or not jax.config.jax_enable_compilation_cache:
        return None
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return None
    folder = cache_dir() / "xla" / f"{jaxlib_version}-{machine_key()}"
    problem = _why_read_only(folder)
    if problem is not None:
        logger.warning(
            "compiled steps cannot be kept (%s): each start compiles those that are not there "
            "yet. JAX_ENGINE_CACHE names a folder that can be written.",
            problem,
        )
        if not folder.is_dir():
            return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # In a read-only folder JAX must not try to write: each attempt would log a warning.
    least = 0.2 if problem is None else float("inf")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
    return folder


def _why_read_only(folder: Path) -> OSError | None:
    """The error of creating a file in the folder, or None. Mode bits mislead, e.g. for root."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return error
    return None


def machine_key() -> str:
    """A hash of the CPU's features: programs and bits may be others on another one."""
    text = platform.machine() + platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        wanted = ("flags", "Features", "model name")
        lines = cpuinfo.read_text(errors="replace").splitlines()
        text += "".join(sorted({line for line in lines if line.startswith(wanted)}))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
