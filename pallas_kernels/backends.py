"""Which implementation of an operation runs.

A backend is a package `pallas_kernels/<name>/` whose `attention.py` defines

    attend(call, options, metadata) -> (out, log-sum-exp or None)
    missing(call, options) -> the feature of the call that the backend lacks, or None
    make_metadata(context_lens, query_start_loc, num_tokens, *, decode_only)

A backend is imported at its first use, so that a user needs only the packages of that backend.
"""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from pallas_kernels.call import Call, Options
from pallas_kernels.device import gfx_version, interpreting, sm_version, target_device

# Backends, best first, each with the compute capability of the oldest NVIDIA GPU that it supports.
# "numba" is for CPUs; "xla" runs on every device.
BACKENDS: dict[str, int | None] = {"mosaic": 90, "triton": 80, "numba": None, "xla": None}
# And of the newest: Mosaic's kernels multiply by WGMMA, which only Hopper has.
NEWEST = {"mosaic": 90}
# The AMD GPUs that a backend's kernels compile for (`make aot`); none has run them.
AMD = {"triton": ("gfx942",)}

# Of a step in which each sequence has one query. On an H100 Triton's kernel was the faster
# one in long contexts (docs/gpu.md), and it merges splits in one kernel.
FOR_DECODE = ("triton", "mosaic", "numba", "xla")

# Whose sums can be made not to depend on the other rows of a step.
BATCH_INVARIANT = ("triton", "numba")

Backend = str | tuple[str, ...] | None


def implementation(name: str) -> Any:
    """The module of a backend.

    Raises:
        ImportError: this installation of JAX lacks a module that the backend needs.
    """
    return importlib.import_module(f"pallas_kernels.{name}.attention")


def choose_backend(backend: Backend) -> str:
    """Chooses the backend for a step on this device by the device alone.

    Raises:
        ValueError: as for `choose_for_call`.
    """
    return choose(backend, lambda name: None)


def choose_for_call(backend: Backend, call: Call, options: Options) -> str:
    """Chooses the backend that runs a call.

    Args:
        backend: a name; or several, of which the first that supports the call is chosen; or None
            for the best one. A GPU's kernels are interpreted on a CPU only if a single name asks
            for them.
        call: the arrays of the call, of which only shapes and dtypes are read.
        options: the static part of the call.

    Raises:
        ValueError: the backend does not exist, or does not support the call on this device.
    """
    return choose(backend, lambda name: implementation(name).missing(call, options))


def backend_names(backend: Backend) -> tuple[str, ...]:
    """The names of the requested backends, best first.

    Raises:
        ValueError: a backend does not exist.
    """
    names = (backend,) if isinstance(backend, str) else backend
    unknown = [name for name in names or () if name not in BACKENDS]
    if unknown or names == ():
        raise ValueError(
            f"{backend=} does not exist; use one of {', '.join(BACKENDS)}, several of them in "
            "order of preference, or None to let the device decide"
        )
    return tuple(BACKENDS) if names is None else names


def numba_or_xla(backend: Backend, dtype: jnp.dtype) -> str:
    """Chooses the backend of an operation that only "numba" and "xla" have.

    Raises:
        ValueError: no requested backend runs the operation on arrays of this dtype.
    """
    for name in backend_names(backend):
        if name == "xla" or (name == "numba" and _suits_numba(dtype)):
            return name
    raise ValueError(
        f"{backend=} lacks this operation for {dtype.name} on this device; 'xla' or None has it"
    )


def runs_cpu_kernels() -> bool:
    """Whether this device runs the kernels of `cpu_kernels`. Otherwise it runs XLA's operations."""
    return _unavailable("numba") is None


def _suits_numba(dtype: jnp.dtype) -> bool:
    return runs_cpu_kernels() and dtype.name in implementation("numba").DTYPES


def choose(backend: Backend, missing: Callable[[str], str | None]) -> str:
    """Chooses the backend of an operation, given why one does not support a call.

    Raises:
        ValueError: as for `choose_for_call`.
    """
    lacks: dict[str, str] = {}
    for name in backend_names(backend):
        lack = _unavailable(name, may_interpret=isinstance(backend, str)) or missing(name)
        if lack is None:
            return name
        lacks[name] = lack
    others = [name for name in BACKENDS if name not in lacks]
    able = [name for name in others if (_unavailable(name) or missing(name)) is None]
    advice = f"{able[0]!r} supports this call" if able else "no other backend supports this call"
    raise ValueError(
        f"{backend=}: {'; '.join(f'{n!r} lacks {lack}' for n, lack in lacks.items())}; {advice}"
    )


def _unavailable(name: str, may_interpret: bool = False) -> str | None:
    """What this machine lacks to run a backend, or None."""
    oldest = BACKENDS[name]
    if oldest is not None and not (may_interpret and interpreting()):
        lack = _lacks_gpu(name, oldest)
        if lack is not None:
            return lack
    if name == "numba":
        if target_device().platform != "cpu":
            return f"a CPU (the device is {target_device().device_kind})"
        if (reason := _cpu_kernels_failure()) is not None:
            return f"kernels that can be compiled here ({reason})"
    try:
        implementation(name)
    except ImportError as error:
        return f"a module ({error})"
    return None


def _lacks_gpu(name: str, oldest: int) -> str | None:
    """What a backend for GPUs lacks on this device, or None."""
    gfx, sm = gfx_version(), sm_version()
    if gfx is not None:
        able = AMD.get(name, ())
        wanted = f"an AMD GPU of {' or '.join(able)}" if able else "an NVIDIA GPU"
        return None if gfx in able else f"{wanted} (the device is {gfx})"
    if sm is None:
        return f"an NVIDIA GPU (the device is {target_device().device_kind})"
    if sm < oldest:
        return f"a GPU of sm_{oldest} or newer (the device is sm_{sm})"
    if sm > NEWEST.get(name, sm):
        return f"instructions of sm_{NEWEST[name]} (the device is sm_{sm})"
    return None


def _cpu_kernels_failure() -> str | None:
    if importlib.util.find_spec("cpu_kernels") is None:
        return "no package cpu_kernels"
    from cpu_kernels.compiling.availability import failure

    return failure()
