"""How the functions of a kernel are compiled, and where the code is kept for later processes."""

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

# Part of the object code of those that XLA calls, so that only those are kept; Python calls none
# of them. Numba divides as Python does, and raises, unless it is told to do as NumPy.
_PART: dict[str, Any] = {
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": PartCompiler,
}
inner = numba.njit(**_PART)
# The same for what is called in a loop that has no time for calls.
inlined = numba.njit(**_PART, forceinline=True)


def processor_has(feature: str) -> bool:
    """Whether the processor that code is compiled for has something, by LLVM's name of it.

    That is this one, unless NUMBA_CPU_FEATURES lists another's.
    """
    listed = numba.config.CPU_FEATURES
    if listed is None:
        return bool(llvm.get_host_cpu_features().get(feature))
    return f"+{feature}" in listed.split(",")


def _folder() -> str:
    """A folder for exactly these sources, this version of Numba and this machine's number of cores.

    Numba itself looks at the file of the function alone, though what it calls and the constants
    in it are part of the code; and it throws away what another version of it has left.
    """
    sources = [path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.py"))]
    around = f"{numba.__version__} {os.cpu_count()}".encode()
    digest = hashlib.sha256(b"\0".join([*sources, around])).hexdigest()
    root = numba.config.CACHE_DIR or user_cache() / "cpu-kernels"
    return str(Path(root, digest[:16]))


FOLDER = _folder()


def cached(compiler: Any, *signature: str) -> Callable[[Any], Any]:
    """A decorator: `numba.njit` or `numba.cfunc`, with code that later processes find again."""

    def decorate(function: Any) -> Any:
        with caching_in(FOLDER):
            return compiler(*signature, cache=True, pipeline_class=WholeCompiler)(function)

    return decorate
