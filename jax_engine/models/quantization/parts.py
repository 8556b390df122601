"""The tensors of one quantised module: what is checked before anything is read or allocated."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.weights.tensor_source import TensorSource

FLOATS = ("F16", "BF16", "F32")


class RawSource(TensorSource, Protocol):
    """A checkpoint whose tensors can be read as they are stored."""

    def dtype(self, name: str) -> str:
        """What the file calls the dtype: "F32", "I8"."""

    def raw(self, name: str) -> np.ndarray:
        """The tensor as it is stored. Thread-safe."""


@dataclass(frozen=True)
class Parts:
    """Tensors of the module `module`, by the ends of their names.

    Attributes:
        names: the whole name for each end.
    """

    source: RawSource
    module: str
    names: Mapping[str, str]

    def has(self, end: str) -> bool:
        return end in self.names

    def describe(self) -> str:
        """File and name of one of the parts, as messages have them."""
        return self.source.describe(next(iter(self.names.values())))

    def dtype(self, end: str) -> str:
        return self.source.dtype(self._name(end))

    def shape(self, end: str) -> tuple[int, ...]:
        return self.source.shape(self._name(end))

    def _name(self, end: str) -> str:
        """Raises WeightsError if it is missing."""
        if end not in self.names:
            raise WeightsError(
                f"{self.describe()} belongs to a quantised matrix, but tensor "
                f"{self.module}{end} is missing. Is the checkpoint complete?"
            )
        return self.names[end]

    def expect(
        self, end: str, dtypes: tuple[str, ...], *shapes: tuple[int | None, ...]
    ) -> tuple[int, ...]:
        """The shape of a part, one of `shapes`; None is any size from 1 on.

        Raises:
            WeightsError: It is missing, or of another dtype or shape.
        """
        name = self._name(end)
        dtype, found = self.source.dtype(name), self.source.shape(name)
        if dtype not in dtypes:
            raise self.error(end, f"dtype {' or '.join(dtypes)}", dtype)
        if not any(_fits(found, shape) for shape in shapes):
            texts = (str(shape).replace("None", "any") for shape in shapes)
            raise self.error(end, f"shape {' or '.join(texts)}", found)
        return found

    def error(self, end: str, expected: str, found: object) -> WeightsError:
        """An error that names file and tensor."""
        where = self.source.describe(self._name(end))
        return WeightsError(f"{where}: expected {expected}, found {found}.")

    def raw(self, end: str) -> np.ndarray:
        return self.source.raw(self._name(end))

    def floats(self, end: str) -> np.ndarray:
        """The numbers of a part, in float32."""
        return self.raw(end).astype(np.float32)


def _fits(found: tuple[int, ...], shape: tuple[int | None, ...]) -> bool:
    return len(found) == len(shape) and all(
        a >= 1 if b is None else a == b for a, b in zip(found, shape, strict=True)
    )
