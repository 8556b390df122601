"""JAX's devices, and what would run on them. Asked in a process of their own, which may crash."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax_engine.commands.diagnosis.finding import Finding, size
from jax_engine.commands.diagnosis.machine import has_nvidia_gpu

PATIENCE_S = 120.0  # it takes 2 s where a core is free
PACKAGES = str(Path(__file__).resolve().parents[3])  # where this package is
_ASKED = "jax_engine.operations.report"
_REINSTALL = "reinstall it (pip install --force-reinstall jax jaxlib)"
_BROKEN = f"JAX does not work here: {_REINSTALL}"
_SLOW = (
    f"JAX is very slow or hangs here: try again when the machine has less to do, or {_REINSTALL}"
)
_MEMORY, _DTYPES = "device memory", "weights, KV cache"
_ATTENTION, _PRODUCTS = "attention", "matrix products"


def ask(module: str, *arguments: str) -> "subprocess.CompletedProcess[str] | None":
    """Runs `python -m MODULE ARGUMENTS`; None: it took too long."""
    path = os.pathsep.join(dict.fromkeys([PACKAGES, *filter(None, sys.path)]))
    try:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            env=os.environ | {"PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None


def device() -> Iterator[Finding]:
    """What the process says; a crash or a hang is a finding, and the rest is not known."""
    done = ask(_ASKED)
    if done is None:
        yield from _nothing(f"JAX has not answered within {PATIENCE_S:.0f} s", _SLOW)
        return
    if done.returncode != 0:
        yield from _nothing(f"JAX fails: {why(done)}", _BROKEN)
        return
    yield from _said(json.loads(done.stdout.splitlines()[-1]))


def why(done: "subprocess.CompletedProcess[str]") -> str:
    """Why such a process failed, in a line."""
    if done.returncode < 0:
        return f"its process ended with {signal.Signals(-done.returncode).name}"
    return (done.stderr.strip().splitlines() or ["it says nothing"])[-1][:200]


def _nothing(why: str, to_do: str) -> Iterator[Finding]:
    """All findings by their names, so that programs find them in the JSON."""
    yield Finding("device", why, to_do)
    for name in (_MEMORY, _DTYPES, _ATTENTION, _PRODUCTS):
        yield Finding(name, "not known")


def _said(facts: dict[str, Any]) -> Iterator[Finding]:
    cuda = None
    if facts["platform"] == "cpu" and has_nvidia_gpu() and "JAX_PLATFORMS" not in os.environ:
        cuda = "there is an NVIDIA GPU that JAX does not use: pip install 'jax-engine[cuda]'"
    yield Finding("device", ", ".join(facts["devices"]), cuda)
    memory = facts["memory"]
    share = int(memory * facts["memory_share"])
    yield Finding(_MEMORY, f"{size(memory)}; an engine takes {size(share)} of it")
    dtype = facts["dtype"]
    yield Finding(_DTYPES, f"{dtype} and {dtype} (--dtype)")
    yield Finding(_ATTENTION, facts["attention"], facts["to_do"])
    yield Finding(_PRODUCTS, facts["products"])
