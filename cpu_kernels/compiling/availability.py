"""Whether the kernels run on this machine: found out once, by compiling all of them.

On a machine's first start that takes 13 seconds of a core, so a second process compiles attention,
which is half of it, while this one compiles the rest. They meet in Numba's cache.
"""

import functools
import importlib
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger("cpu_kernels.compile")

ATTENTION = "cpu_kernels.attention.kernel"
OTHERS = (
    "cpu_kernels.linear.panels",
    "cpu_kernels.linear.linear",
    "cpu_kernels.linear.gated_linear",
    "cpu_kernels.sampling.draw",
    "cpu_kernels.rms_norm",
    "cpu_kernels.kv_write",
    "cpu_kernels.zeros",
)
PATIENCE_S = 300  # for the second process; then its part is compiled here as well


@functools.cache
def failure() -> str | None:
    """Why these kernels cannot run here, or None if they are ready.

    Without Numba, or where a kernel fails to compile, XLA's operations take their place; one line
    says so. Nothing is raised, whatever goes wrong.
    """
    started = time.perf_counter()
    try:
        with _attention_compiled_beside():
            for name in OTHERS:
                importlib.import_module(name)
        importlib.import_module(ATTENTION)
    except Exception as error:  # Numba, LLVM and XLA have types of their own
        text = re.sub(r"\x1b\[\d*m", "", str(error)).strip().partition("\n")[0]  # Numba's is bold
        reason = f"{type(error).__name__}: {text}"
        logger.warning("the kernels for this CPU are left to XLA, which is slower (%s)", reason)
        return reason
    seconds = time.perf_counter() - started
    if seconds >= 1:
        logger.info("the kernels for this CPU are ready after %.1f s", seconds)
    return None


@contextmanager
def _attention_compiled_beside() -> Iterator[None]:
    """A second process compiles while this one does something else; both are done at the end."""
    helper = _start_helper()
    try:
        yield
    finally:
        if helper is not None:
            try:
                helper.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                helper.kill()
                helper.wait()


def _start_helper() -> "subprocess.Popen[bytes] | None":
    """None if there is nothing to compile, or nowhere to meet."""
    from cpu_kernels.compiling.jit import FOLDER

    if (os.cpu_count() or 1) < 2 or not Path(sys.executable or "").name.startswith("python"):
        return None
    try:
        os.makedirs(FOLDER)  # an existing one is another process's, which has compiled or does so
        places = os.pathsep.join(place or os.getcwd() for place in sys.path)
        return subprocess.Popen(
            [sys.executable, "-c", f"import {ATTENTION}"],
            env=os.environ | {"PYTHONPATH": places, "JAX_PLATFORMS": "cpu"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
