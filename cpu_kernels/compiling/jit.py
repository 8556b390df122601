"""Numba's decorators for the functions of kernels, and the folder that caches their code."""

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core import event

from cpu_kernels.compiling.code_cache import caching_in
from cpu_kernels.compiling.parts import PartCompiler, WholeCompiler
from cpu_kernels.compiling.user_cache import user_cache

logger = logging.getLogger("cpu_kernels.compile")


class _SaysWhenCold(event.Listener):  # type: ignore[misc]
    """Logs once, before the first kernel that must be compiled because Numba's cache lacks it."""

    def on_start(self, happening: Any) -> None:
        function = happening.data["dispatcher"].py_func
        if str(function.__module__).startswith("cpu_kernels."):  # None in code from a string
            event.unregister("numba:compile", self)
            logger.info("compiling the kernels for this CPU, which later starts will find ...")

    def on_end(self, happening: Any) -> None:
        pass


event.register("numba:compile", _SaysWhenCold())

# For functions that only kernels call: their code is part of the kernels' code, so they need no
# entry in the cache and no wrapper for Python. NumPy's error model divides without raising.
_PART: dict[str, Any] = {
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": PartCompiler,
}
inner = numba.njit(**_PART)
# The same, for functions called in loops where a call would take too long.
inlined = numba.njit(**_PART, forceinline=True)


def processor_has(feature: str) -> bool:
    """Whether the processor that code is compiled for has a feature, by LLVM's name.

    This is the machine's processor, unless NUMBA_CPU_FEATURES lists another's features.
    """
    listed = numba.config.CPU_FEATURES
    if listed is None:
        return bool(llvm.get_host_cpu_features().get(feature))
    return f"+{feature}" in listed.split(",")


def _folder() -> str:
    """A folder for exactly these sources, this version of Numba and this machine's number of cores.

    Numba itself only checks the function's file, though the code also depends on the functions
    that it calls and on constants. And Numba deletes entries of its other versions.
    """
    sources = [path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.py"))]
    around = f"{numba.__version__} {os.cpu_count()}".encode()
    digest = hashlib.sha256(b"\0".join([*sources, around])).hexdigest()
    root = numba.config.CACHE_DIR or user_cache() / "cpu-kernels"
    return str(Path(root, digest[:16]))


FOLDER = _folder()


def cached(compiler: Any, *signature: str) -> Callable[[Any], Any]:
    """A decorator like `numba.njit` or `numba.cfunc`, whose code is cached for later processes."""

    def decorate(function: Any) -> Any:
        with caching_in(FOLDER):
            return compiler(*signature, cache=True, pipeline_class=WholeCompiler)(function)

    return decorate
