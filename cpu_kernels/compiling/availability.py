"""Finds out whether the kernels run on this machine, once, by compiling all of them.

On a machine's first start this takes 13 seconds of a core. So a second process compiles attention,
half of the work, while this one compiles the other kernels. Both write to Numba's cache.
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

ATTENTION = "cpu_kernels.attention.attention_kernel"
OTHERS = (
    "cpu_kernels.linear.panels",
    "cpu_kernels.linear.float_weights",
    "cpu_kernels.sampling.draw",
    "cpu_kernels.sampling.softmax_sums",
    "cpu_kernels.norms",
    "cpu_kernels.kv_write",
    "cpu_kernels.block_copy",
    "cpu_kernels.zeros",
)
# Imported, and so compiled, when an engine needs them: weights are held as codes, products are in
# int8, rows have adapters, several processes share a model, or the model is an encoder.
ON_DEMAND = {
    "codes": ("cpu_kernels.linear.coded_panels", "cpu_kernels.linear.coded_weights"),
    "W8A8": ("cpu_kernels.linear.w8a8_weights",),
    "adapters": ("cpu_kernels.low_rank.shrink", "cpu_kernels.low_rank.add_low_rank"),
    "several processes": ("cpu_kernels.meeting.gather",),
    "encoders": ("cpu_kernels.attention.bidirectional_attention",),
}
PATIENCE_S = 300  # wait for the second process; then this one compiles attention as well


@functools.cache
def failure() -> str | None:
    """Why these kernels cannot run here, or None if they are ready.

    Without Numba, or if a kernel fails to compile, XLA's operations replace the kernels, and one
    log line says so. This function never raises.
    """
    started = time.perf_counter()
    try:
        with _attention_compiled_beside():
            for name in OTHERS:
                importlib.import_module(name)
        importlib.import_module(ATTENTION)
    except Exception as error:  # Numba, LLVM and XLA have types of their own
        reason = _reason(error)
        logger.warning("the kernels for this CPU are left to XLA, which is slower (%s)", reason)
        return reason
    seconds = time.perf_counter() - started
    if seconds >= 1:
        logger.info("the kernels for this CPU are ready after %.1f s", seconds)
    return None


@functools.cache
def failure_on_demand(need: str) -> str | None:
    """Why the kernels for a need of ON_DEMAND cannot run here, or None once they are ready.

    One log line says so. This function never raises.
    """
    try:
        for name in ON_DEMAND[need]:
            importlib.import_module(name)
    except Exception as error:
        reason = _reason(error)
        logger.warning(
            "the kernels for %s do not run here, what replaces them is slower (%s)", need, reason
        )
        return reason
    return None


def _reason(error: Exception) -> str:
    text = re.sub(r"\x1b\[\d*m", "", str(error)).strip().partition("\n")[0]  # Numba's is bold
    return f"{type(error).__name__}: {text}"


@contextmanager
def _attention_compiled_beside() -> Iterator[None]:
    """Compiles attention in a second process during the block, and waits for it at the end."""
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
    """Starts the second process; None if it would not help, or there is no cache to write to."""
    from cpu_kernels.compiling.jit import FOLDER

    if (os.cpu_count() or 1) < 2 or not Path(sys.executable or "").name.startswith("python"):
        return None
    try:
        os.makedirs(FOLDER)  # fails if it exists: another process has compiled, or does so now
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
