"""Tensors in memory as a checkpoint's; it counts what is read."""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np


class ArraysSource:
    """A `TensorSource` of arrays.

    Attributes:
        reads: names in the order in which they were read.
    """

    location = Path("memory")

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = arrays
        self.reads: list[str] = []

    def names(self) -> Collection[str]:
        return self.arrays.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self.arrays[name].shape

    def read_into(self, name: str, out: np.ndarray) -> None:
        assert out.shape == self.arrays[name].shape, name
        self.reads.append(name)
        out[...] = self.arrays[name]

    def describe(self, name: str) -> str:
        return f"memory, tensor {name}"
