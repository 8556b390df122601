"""The formats of a model's weights."""

import jax.numpy as jnp

from jax_engine.operations.device import this_device
from jax_engine.operations.table import on_numba
from jax_engine.weights.dense import Dense, IndexedDense
from jax_engine.weights.format import Formats
from jax_engine.weights.panels import Panels


def formats_for(dtype: jnp.dtype) -> Formats:
    """The formats for weights of a dtype on this device."""
    if on_numba(dtype):
        return Formats(Panels(), Dense())
    if this_device().slices_are_copied:
        return Formats(IndexedDense(), Dense())
    return Formats(Dense(), Dense())
