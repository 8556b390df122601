"""Checkpoints of a bare decoder, whose names lack the first part: "wte.weight" of GPT-2.

Transformers saves a decoder without its head so, and reads it as the model with its head. Published
checkpoints of GPT-2, BLOOM and OPT are of this kind.
"""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from jax_engine.weights.tensor_source import TensorSource


def with_first_part(source: TensorSource, embedding: str, heads: Collection[str]) -> TensorSource:
    """The same tensors by the names of a model with its head, if all lack the first part.

    Args:
        embedding: the name of the embedding's matrix, with the first part.
        heads: names that never have the first part.
    """
    first, _, bare = embedding.partition(".")
    names = source.names()
    if embedding in names or bare not in names:
        return source
    return BareNames(source, f"{first}.", heads)


class BareNames:
    """Tensors whose names lack their first part, but for those of the head."""

    def __init__(self, source: TensorSource, first: str, heads: Collection[str]) -> None:
        self.location: Path = source.location
        self._source, self._first, self._heads = source, first, heads

    def names(self) -> Collection[str]:
        found = self._source.names()
        return [name if name in self._heads else self._first + name for name in found]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source.shape(name.removeprefix(self._first))

    def read_into(self, name: str, out: np.ndarray) -> None:
        self._source.read_into(name.removeprefix(self._first), out)

    def describe(self, name: str) -> str:
        return self._source.describe(name.removeprefix(self._first))
