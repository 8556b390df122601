"""How the functions of a kernel are compiled, and where the code is kept for later processes."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba

from pallas_kernels.numba.code_cache import caching_in
from pallas_kernels.numba.parts import PartCompiler
from pallas_kernels.user_cache import user_cache

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
    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    around = f"{numba.__version__} {os.cpu_count()}".encode()
    digest = hashlib.sha256(b"\0".join([*sources, around])).hexdigest()
    root = numba.config.CACHE_DIR or user_cache() / "pallas-kernels"
    return str(Path(root, digest[:16]))


FOLDER = _folder()


def cached(compiler: Any, *signature: str) -> Callable[[Any], Any]:
    """A decorator: `numba.njit` or `numba.cfunc`, with code that later processes find again."""

    def decorate(function: Any) -> Any:
        with caching_in(FOLDER):
            return compiler(*signature, cache=True)(function)

    return decorate
