"""The formats of a model's weights."""

from collections.abc import Collection

import jax.numpy as jnp

from jax_engine.operations.device import this_device
from jax_engine.operations.table import on_numba
from jax_engine.weights.coded import Coded, common_kind
from jax_engine.weights.codes import Kind
from jax_engine.weights.dense import Dense, IndexedDense
from jax_engine.weights.format import Formats, WeightFormat
from jax_engine.weights.panels import Panels


def formats_for(dtype: jnp.dtype) -> Formats:
    """The formats for weights of a dtype on this device."""
    if on_numba(dtype):
        return Formats(Panels(), Dense())
    if this_device().slices_are_copied:
        return Formats(IndexedDense(), Dense())
    return Formats(Dense(), Dense())


def coded_format(
    kinds: tuple[Kind, ...], used: Collection[Kind], dtype: jnp.dtype, *, ordered: bool
) -> WeightFormat | None:
    """The format for a weight whose rows are codes.

    Args:
        kinds: the kinds of the checkpoint, as its source numbers them.
        used: those of this weight.
        dtype: of activations.
        ordered: whether its columns are in another order.

    Returns:
        None if no format holds such rows: then they are decoded when they are read.
    """
    kind = None if on_numba(dtype) else common_kind(used)
    return None if kind is None else Coded(kinds, kind, ordered)
