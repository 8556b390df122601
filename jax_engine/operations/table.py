"""The table of operations, and the choice of its row."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from jax_engine.operations import mosaic, xla
from pallas_kernels.backends import runs_cpu_kernels

# In what weights the kernels for a CPU multiply; other dtypes are left to XLA.
NUMBA_DTYPES = ("float32", "bfloat16", "float16")


class Operations(NamedTuple):
    """A row of the table; `xla.py` says what each operation does."""

    add_rms_norm: Callable[..., Any]
    add_layer_norm: Callable[..., Any]
    rms_norm: Callable[..., Any]
    layer_norm: Callable[..., Any]
    head_norm: Callable[..., Any]
    softmax: Callable[..., Any]
    logsumexp: Callable[..., Any]
    draw: Callable[..., Any]
    zeros: Callable[..., Any]
    add_low_rank: Callable[..., Any]


XLA = Operations(
    add_rms_norm=xla.add_rms_norm,
    add_layer_norm=xla.add_layer_norm,
    rms_norm=xla.rms_norm,
    layer_norm=xla.layer_norm,
    head_norm=xla.head_norm,
    softmax=xla.softmax,
    logsumexp=xla.logsumexp,
    draw=xla.draw,
    zeros=jnp.zeros,
    add_low_rank=xla.add_low_rank,
)


def device_operations(batch_invariant: bool = False) -> Operations:
    """What computes on this device.

    Args:
        batch_invariant: as in `make_batch`.
    """
    if batch_invariant:
        return _invariant()
    if not runs_cpu_kernels():
        return XLA._replace(add_low_rank=mosaic.add_low_rank)
    # Imports Numba, which no GPU needs.
    from jax_engine.operations import numba

    return Operations(
        add_rms_norm=numba.add_rms_norm,
        add_layer_norm=numba.add_layer_norm,
        rms_norm=numba.rms_norm,
        layer_norm=numba.layer_norm,
        head_norm=numba.head_norm,
        softmax=numba.softmax,
        logsumexp=numba.logsumexp,
        draw=numba.draw,
        zeros=numba.zeros,
        add_low_rank=numba.add_low_rank,
    )


def _invariant() -> Operations:
    """XLA's row, but for what adds up rows."""
    # Imports Triton's dialect, which no CPU needs.
    from jax_engine.operations import invariant

    return XLA._replace(
        add_rms_norm=invariant.add_rms_norm,
        add_layer_norm=invariant.add_layer_norm,
        rms_norm=invariant.rms_norm,
        layer_norm=invariant.layer_norm,
        head_norm=invariant.head_norm,
        logsumexp=invariant.logsumexp,
    )


def on_numba(dtype: jnp.dtype) -> bool:
    """Whether the kernels for a CPU multiply with weights of a dtype on this device."""
    return dtype.name in NUMBA_DTYPES and runs_cpu_kernels()


def decodes_are_ragged(*, batch_invariant: bool) -> bool:
    """Whether rows of a step that only decodes may have several queries, as rows with guesses have.

    Attention then reads such a row's keys and values once.

    Args:
        batch_invariant: as in `make_batch`.
    """
    return runs_cpu_kernels() and not batch_invariant
