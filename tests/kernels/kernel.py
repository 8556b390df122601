"""The kernels of a run: those that `--kernel` names, or all of ours."""

import importlib

from paged_conformance.adapters.jax_engine_kernels import Ours, numba, ours, xla
from paged_conformance.kernel.adapt import adapter_of
from paged_conformance.kernel.functions import Function, JaxFunction
from paged_conformance.kernel.target import Kernel

__all__ = ["Function", "JaxFunction", "Kernel", "Ours", "load", "numba", "ours", "xla"]


def load(path: str) -> Kernel:
    """The kernel at `some.module:name`: an adapter, or a function with our signature."""
    module, _, name = path.partition(":")
    return adapter_of(getattr(importlib.import_module(module), name))
