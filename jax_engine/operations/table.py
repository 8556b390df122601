"""The table of operations, and the choice of its row."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from jax_engine.operations import xla
from pallas_kernels.backends import runs_cpu_kernels

# What the kernels for a CPU compute with; other dtypes are left to XLA.
NUMBA_DTYPES = ("float32", "bfloat16")


class Operations(NamedTuple):
    """A row of the table; `xla.py` says what each operation does."""

    add_rms_norm: Callable[..., Any]
    add_layer_norm: Callable[..., Any]
    rms_norm: Callable[..., Any]
    layer_norm: Callable[..., Any]
    draw: Callable[..., Any]
    zeros: Callable[..., Any]


XLA = Operations(
    add_rms_norm=xla.add_rms_norm,
    add_layer_norm=xla.add_layer_norm,
    rms_norm=xla.rms_norm,
    layer_norm=xla.layer_norm,
    draw=xla.draw,
    zeros=jnp.zeros,
)


def operations_for(dtype: jnp.dtype) -> Operations:
    """What computes with arrays of a dtype on this device."""
    if not runs_cpu_kernels():
        return XLA
    # Imports Numba, which no GPU needs.
    from jax_engine.operations import numba

    if not on_numba(dtype):
        return XLA._replace(zeros=numba.zeros)
    return Operations(
        add_rms_norm=numba.add_rms_norm,
        add_layer_norm=numba.add_layer_norm,
        rms_norm=numba.rms_norm,
        layer_norm=numba.layer_norm,
        draw=numba.draw,
        zeros=numba.zeros,
    )


def on_numba(dtype: jnp.dtype) -> bool:
    """Whether the kernels for a CPU compute with arrays of a dtype on this device."""
    return dtype.name in NUMBA_DTYPES and runs_cpu_kernels()
