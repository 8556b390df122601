"""The interface of checkpoint readers, for every file format."""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from jax_engine.weights.codes import Kind


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
