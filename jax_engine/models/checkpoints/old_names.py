"""The tensors of old files of BERT, by the names that they have had since.

The first files were made of TensorFlow's, which calls the scale of a norm gamma and its shift beta.
Transformers still reads them; so `...LayerNorm.gamma` is `...LayerNorm.weight` here, too.
"""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from jax_engine.models.checkpoints.quantization.method import RawSource

_ENDS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def with_present_names(source: RawSource) -> RawSource:
    """The same tensors by their present names; the source itself if it has no old ones."""
    if any(name.endswith(tuple(_ENDS)) for name in source.names()):
        return PresentNames(source)
    return source


class PresentNames:
    """Tensors of a source, of which some have old names there.

    A tensor keeps its old name where the source has the present one, too. Then it is one too many,
    and `check_tensors` says so.
    """

    def __init__(self, source: RawSource) -> None:
        self.location: Path = source.location
        self._source = source
        held = set(source.names())
        self._theirs = {self._present(name, held): name for name in source.names()}

    @staticmethod
    def _present(name: str, held: Collection[str]) -> str:
        for old, present in _ENDS.items():
            renamed = name.removesuffix(old) + present
            if name.endswith(old) and renamed not in held:
                return renamed
        return name

    def names(self) -> Collection[str]:
        return self._theirs.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source.shape(self._theirs[name])

    def dtype(self, name: str) -> str:
        return self._source.dtype(self._theirs[name])

    def raw(self, name: str) -> np.ndarray:
        """The tensor as it is stored. Thread-safe."""
        return self._source.raw(self._theirs[name])

    def read_into(self, name: str, out: np.ndarray) -> None:
        self._source.read_into(self._theirs[name], out)

    def describe(self, name: str) -> str:
        """File and tensor, by the name that it has there."""
        return self._source.describe(self._theirs[name])
