"""An adapter's tensors before they are read: from a safetensors file, or from arrays."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.file_schema import short
from jax_engine.models.safetensors_loader import SafetensorsSource
from jax_engine.models.safetensors_raw import DTYPES
from jax_engine.weights.finite import all_finite

# What numbers are held as. Those of float64 are rounded: no adapter is trained so finely.
HELD: dict[np.dtype, np.dtype] = {
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.float32): np.dtype(np.float32),
    np.dtype(np.float16): np.dtype(np.float16),
    np.dtype(ml_dtypes.bfloat16): np.dtype(ml_dtypes.bfloat16),
}


class Stored(NamedTuple):
    """A tensor that can be read.

    Attributes:
        where: file and tensor, as messages name them.
        load: reads it. Raises WeightsError.
    """

    shape: tuple[int, ...]
    where: str
    load: Callable[[], np.ndarray]

    def read(self) -> np.ndarray:
        """The numbers. Raises WeightsError if one is NaN or infinite, or the file has changed."""
        values = self.load()
        if values.shape != self.shape:
            raise WeightsError(f"{self.where}: expected shape {self.shape}, read {values.shape}.")
        if not all_finite(values):
            at = tuple(map(int, np.argwhere(~np.isfinite(values.astype(np.float32)))[0]))
            raise WeightsError(
                f"{self.where}: numbers must be finite, found {values[at]} at {list(at)}."
            )
        return values


def stored_in_file(path: Path) -> dict[str, Stored]:
    """The tensors of a safetensors file, whose header alone is read. Raises WeightsError."""
    source = SafetensorsSource(path)

    def one(name: str) -> Stored:
        kind, where = source.dtype(name), source.describe(name)
        held = held_as(DTYPES.get(kind), kind, where)
        return Stored(source.shape(name), where, lambda: _cast(source.raw(name), held))

    return {name: one(name) for name in source.names()}


def stored_arrays(tensors: Mapping[str, np.ndarray]) -> dict[str, Stored]:
    """Arrays in memory by PEFT's names. Raises WeightsError for what is no array of floats."""

    def one(name: str, array: np.ndarray) -> Stored:
        where = f"tensor {name}"
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise WeightsError(f"{where}: expected a NumPy array, got {short(array)}.")
        native = array.dtype.newbyteorder("=")
        held = held_as(native, native.name, where)
        return Stored(array.shape, where, lambda: _cast(array, held))

    return {name: one(name, array) for name, array in tensors.items()}


def held_as(dtype: np.dtype | None, name: str, where: str) -> np.dtype:
    """What numbers of a dtype are held as. Raises WeightsError if they are none."""
    found = None if dtype is None else HELD.get(dtype)
    if found is None:
        known = ", ".join(one.name for one in HELD)
        raise WeightsError(f"{where}: dtype {name} is not supported; known: {known}.")
    return found


def _cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore"):  # what becomes infinite is refused right after
        return values.astype(dtype, copy=False)
