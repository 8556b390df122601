"""JAX's devices, and what would run on them. Asked in a process of their own, which may crash.

That process is `python -m jax_engine.commands.diagnosis.device`, and prints JSON.
"""

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

PATIENCE_S = 30.0
PACKAGES = str(Path(__file__).resolve().parents[3])  # where this package is
_PRODUCTS = {"Panels": "numba, on weights packed into panels"}
_BROKEN = "JAX does not work here: reinstall it (pip install --force-reinstall jax jaxlib)"


def device() -> Iterator[Finding]:
    """What the process says; a crash or a hang is one finding."""
    path = os.pathsep.join(dict.fromkeys([PACKAGES, *filter(None, sys.path)]))
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            env=os.environ | {"PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield Finding("device", f"JAX has not answered within {PATIENCE_S:.0f} s", _BROKEN)
        return
    if done.returncode != 0:
        yield Finding("device", f"JAX fails: {_why(done)}", _BROKEN)
        return
    yield from _said(json.loads(done.stdout.splitlines()[-1]))


def _why(done: "subprocess.CompletedProcess[str]") -> str:
    if done.returncode < 0:
        return f"its process ended with {signal.Signals(-done.returncode).name}"
    return (done.stderr.strip().splitlines() or ["it says nothing"])[-1][:200]


def _said(facts: dict[str, Any]) -> Iterator[Finding]:
    cuda = None
    if facts["platform"] == "cpu" and has_nvidia_gpu() and "JAX_PLATFORMS" not in os.environ:
        cuda = "there is an NVIDIA GPU that JAX does not use: pip install 'jax-engine[cuda]'"
    yield Finding("device", ", ".join(facts["devices"]), cuda)
    memory = facts["memory"]
    share = int(memory * facts["memory_share"])
    yield Finding("device memory", f"{size(memory)}; an engine takes {size(share)} of it")
    dtype = facts["dtype"]
    yield Finding("weights, KV cache", f"{dtype} and {dtype} (--dtype)")
    yield Finding("attention", facts["attention"], facts["to_do"])
    yield Finding("matrix products", facts["products"])


def probe() -> dict[str, Any]:
    """The facts, by the engine's own choices."""
    import jax

    devices = [str(one.device_kind) for one in jax.devices()]  # raises where JAX is broken
    from jax_engine.operations import memory_bytes, this_device

    chosen = this_device()
    facts: dict[str, Any] = {
        "platform": chosen.platform,
        "devices": devices,
        "memory": memory_bytes(),
        "memory_share": chosen.memory_share,
        "dtype": chosen.auto_dtype,
        "to_do": None,
    }
    return facts | _kernels(chosen.platform, chosen.auto_dtype)


def _kernels(platform: str, dtype: str) -> dict[str, Any]:
    """What computes. Kernels that are not compiled yet stay so: that takes too long here."""
    if platform == "cpu" and not _kernels_are_compiled():
        waiting = "numba, compiled at the first start (some 15 s)"
        return {"attention": waiting, "products": waiting}
    import jax.numpy as jnp

    from jax_engine.operations import formats_for
    from pallas_kernels.backends import choose_backend

    backend = choose_backend(None)
    products = type(formats_for(jnp.dtype(dtype)).products).__name__
    to_do = _why_no_kernels() if platform == "cpu" and backend == "xla" else None
    return {"attention": backend, "products": _PRODUCTS.get(products, "XLA"), "to_do": to_do}


def _kernels_are_compiled() -> bool:
    """Also where Numba is broken: then no start compiles anything."""
    try:
        from cpu_kernels.compiling.jit import FOLDER
    except Exception:
        return True
    return any(Path(FOLDER).glob("**/*.nbc"))


def _why_no_kernels() -> str:
    from cpu_kernels.compiling.availability import failure

    return f"the CPU's kernels do not run, and XLA is slower: pip install -U numba ({failure()})"


if __name__ == "__main__":
    print(json.dumps(probe()))
