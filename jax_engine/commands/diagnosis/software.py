"""Versions, and packages that are missing."""

import platform
import sys
from collections.abc import Iterator
from importlib import metadata

from jax_engine.commands.diagnosis.finding import Finding

NEEDED = ("jax", "jaxlib", "numpy", "numba", "transformers", "tokenizers", "fastapi", "uvicorn")
# What works only with them.
OPTIONAL = {"gguf": "GGUF files and the default model", "llguidance": "guided decoding"}


def software() -> Iterator[Finding]:
    """What is installed."""
    yield Finding("python", f"{platform.python_version()} ({sys.executable})")
    yield Finding("jax-engine", version("jax-engine") or "a checkout, not installed")
    for name in NEEDED:
        found = version(name)
        yield Finding(name, found or "missing", None if found else f"pip install {name}")
    for name, what in OPTIONAL.items():
        found = version(name)
        advice = f"pip install {name}: {what} need it"
        yield Finding(name, found or f"missing: no {what}", None if found else advice)


def version(package: str) -> str | None:
    """The installed version; None without the package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
