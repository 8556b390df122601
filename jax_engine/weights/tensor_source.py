"""The interface of checkpoint readers, for every file format, and the check of what they read.

Weights that are NaN or infinite are refused: a model makes only NaN of them, and token 0. Numbers
are looked at right after they are read, while they are in a cache.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.weights.codes import E4M3, Kind, groups_of, meaning


class TensorSource(Protocol):
    """Tensors by name, read one at a time."""

    @property
    def location(self) -> Path: ...

    def names(self) -> Collection[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Writes the whole tensor into `out` (its shape; any float dtype). Thread-safe."""

    def describe(self, name: str) -> str:
        """File and tensor, as messages name them."""


@runtime_checkable
class CodesSource(TensorSource, Protocol):
    """Tensors by name, of which some are quantised.

    `read_into` writes numbers into an array of floats, and rows of codes into one of records.
    """

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of all rows. The `kind` of a record that was read is an index into it."""

    def kind(self, name: str) -> Kind | None:
        """How the rows of a tensor are coded; None: it holds plain numbers."""

    def order(self, name: str) -> np.ndarray | None:
        """The columns' numbers, in the order of the codes; None: they are in order."""

    def turned(self, name: str) -> bool:
        """Whether its shape is [K, N] or [E, K, N], although its rows of codes are N."""


_CHUNK = 1 << 17  # numbers looked at together: the second look is at a cache


def check_finite(source: TensorSource, name: str, values: np.ndarray) -> None:
    """
    Args:
        values: the tensor's numbers, of any float dtype.

    Raises:
        WeightsError: one is NaN or infinite.
    """
    if all_finite(values):
        return
    place = tuple(map(int, np.argwhere(~np.isfinite(values.astype(np.float32)))[0]))
    raise WeightsError(
        f"{source.describe(name)}: weights must be finite numbers of {values.dtype}, found "
        f"{values[place]} at {list(place)}. The file is damaged, or its training failed, or it has "
        "numbers that a wider dtype holds."
    )


def all_finite(values: np.ndarray) -> bool:
    """Whether none is NaN or infinite; integers are not.

    As integers, the bits of those are the largest of all. NumPy finds the largest integer at the
    speed of memory, which it does not in floats of 8 and 16 bits.
    """
    if values.dtype.kind in "biu":
        return True
    size = values.itemsize
    infinity = int(np.array(np.inf, values.dtype).view(f"u{size}"))
    negative = infinity | 1 << 8 * size - 1
    flat = values.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        bits = flat[start : start + _CHUNK].view(f"u{size}")
        if bits.max() >= negative or bits.view(f"i{size}").max() >= infinity:
            return False
    return True


def rows_are_finite(rows: np.ndarray, kinds: tuple[Kind, ...]) -> bool:
    """Whether the numbers of rows of codes are finite; see `codes.row_dtype`."""
    for number, kind in enumerate(kinds):
        here = rows if len(kinds) == 1 else rows[rows["kind"] == number]
        with np.errstate(all="ignore"):
            scales, lowest = groups_of(here, kind)
        floats = [scales] if lowest is None else [scales, lowest]
        if kind.code == E4M3:
            floats.append(meaning(here["codes"], kind))
        if not all(map(all_finite, floats)):
            return False
    return True
