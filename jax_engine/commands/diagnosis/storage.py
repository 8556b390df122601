"""Caches and the default model."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jax_engine.cache_dir import cache_dir, hub_dir, kernels_dir
from jax_engine.commands.diagnosis.finding import Finding, size
from jax_engine.models.default_model import FILE_BYTES, MEMBER

MANY = 20_000  # files after which a size is not counted on


def storage() -> Iterator[Finding]:
    """Each cache: where it is, how large, and whether it can be written."""
    ours = "JAX_ENGINE_CACHE names a folder that can be written"
    yield _cache("compiled steps", cache_dir() / "xla", ours)
    yield _cache("CPU kernels", kernels_dir(), "NUMBA_CACHE_DIR names a folder that can be written")
    yield _cache("hub's models", hub_dir(), "HF_HOME names a folder that can be written")
    path = default_model()
    here = path if path.is_file() and path.stat().st_size == FILE_BYTES else None
    absent = "not here: the first use downloads it (93 MB), as does `jax-engine pull`"
    yield Finding("default model", str(here) if here else absent)


def default_model() -> Path:
    """Where the default model is kept."""
    return cache_dir() / "models" / Path(MEMBER).name


def _cache(name: str, folder: Path, otherwise: str) -> Finding:
    problem = _why_read_only(folder)
    state = "writable" if problem is None else f"not writable ({problem})"
    to_do = None if problem is None else f"{name} cannot be kept in {folder}: {otherwise}"
    return Finding(name, f"{folder}: {_size_of(folder)}, {state}", to_do)


def _why_read_only(folder: Path) -> str | None:
    """Tries the nearest folder that exists: nothing is made here."""
    try:
        while not folder.exists():
            folder = folder.parent
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return str(error.strerror or error)
    return None


def _size_of(folder: Path) -> str:
    total = files = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
            files += 1
        if files > MANY:
            return f"more than {size(total)}"
    return size(total) if files else "empty"
