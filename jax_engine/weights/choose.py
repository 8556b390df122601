"""The formats of a model's weights, chosen once for a device and a dtype."""

from typing import NamedTuple

import jax.numpy as jnp

from jax_engine.weights.dense import Dense, IndexedDense
from jax_engine.weights.format import WeightFormat
from jax_engine.weights.panels import Panels
from pallas_kernels.backends import runs_cpu_kernels
from pallas_kernels.device import target_device

NUMBA_DTYPES = ("float32", "bfloat16")


class Formats(NamedTuple):
    """The formats of a model's weights.

    Attributes:
        products: of weights that activations are multiplied by.
        lookup: of a table whose rows are only looked up.
    """

    products: WeightFormat
    lookup: WeightFormat


def choose_formats(dtype: jnp.dtype) -> Formats:
    """The formats for weights of a dtype on the default device."""
    if on_numba(dtype):
        return Formats(Panels(), Dense())
    if target_device().platform == "cpu":
        return Formats(IndexedDense(), Dense())
    return Formats(Dense(), Dense())


def on_numba(dtype: jnp.dtype) -> bool:
    """Whether numbers of a dtype are computed by the CPU's own kernels here."""
    return dtype.name in NUMBA_DTYPES and runs_cpu_kernels()
