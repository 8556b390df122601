"""What would run on this device, for people. `python -m jax_engine.operations.report` prints JSON.

It is a process of its own for `jax-engine doctor`, which goes on where JAX crashes.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jax_engine.operations.device import memory_bytes, this_device
from jax_engine.operations.table import formats_for
from pallas_kernels.backends import choose_backend

_PRODUCTS = {"Panels": "numba, on weights packed into panels"}
_WAITING = "numba, compiled at the first start (some 15 s)"


def report() -> dict[str, Any]:
    """The engine's choices here, and what to do about them."""
    chosen = this_device()
    facts = {
        "platform": chosen.platform,
        "devices": [str(one.device_kind) for one in jax.devices()],
        "memory": memory_bytes(),
        "memory_share": chosen.memory_share,
        "dtype": chosen.auto_dtype,
    }
    return facts | _kernels(chosen.platform, chosen.auto_dtype)


def _kernels(platform: str, dtype: str) -> dict[str, Any]:
    """What computes. Kernels that are not compiled yet stay so: that takes too long here."""
    if platform == "cpu" and not _compiled():
        return {"attention": _WAITING, "products": _WAITING, "to_do": None}
    backend = choose_backend(None)
    products = type(formats_for(jnp.dtype(dtype)).products).__name__
    to_do = _why_no_kernels() if platform == "cpu" and backend == "xla" else None
    return {"attention": backend, "products": _PRODUCTS.get(products, "XLA"), "to_do": to_do}


def _compiled() -> bool:
    """True also where Numba is broken: then no start compiles anything."""
    try:
        from cpu_kernels.compiling.jit import FOLDER
    except Exception:
        return True
    return any(Path(FOLDER).glob("**/*.nbc"))


def _why_no_kernels() -> str:
    from cpu_kernels.compiling.availability import failure

    return f"the CPU's kernels do not run, and XLA is slower: pip install -U numba ({failure()})"


if __name__ == "__main__":
    print(json.dumps(report()))
