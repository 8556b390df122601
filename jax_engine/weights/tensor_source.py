"""The interface of checkpoint readers, for every file format."""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

import numpy as np


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
