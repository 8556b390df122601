"""A finished shard, read back as the loader would read it."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from jax_engine.models.quantization.opening import METHODS, method_of
from jax_engine.models.quantization.source import QuantizedSource
from jax_engine.models.safetensors_raw import DTYPES, RawFile
from jax_engine.weights.tensor_source import TensorSource

SCALES = (".weight_scale", ".scales")  # ends of what every quantised matrix has
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class ShardFile:
    """The tensors of one file, as they are stored."""

    def __init__(self, path: Path) -> None:
        self.location = path
        raw = RawFile(path)
        with safe_open(path, framework="numpy") as opened:
            self._tensors = {name: raw.read(name) for name in opened.keys()}  # noqa: SIM118

    def names(self) -> Collection[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def dtype(self, name: str) -> str:
        return NAMES[self._tensors[name].dtype]

    def raw(self, name: str) -> np.ndarray:
        return self._tensors[name]

    def read_into(self, name: str, out: np.ndarray) -> None:
        out[...] = self._tensors[name]

    def describe(self, name: str) -> str:
        return f"{self.location}, tensor {name}"


class Renamed:
    """Tensors by other names.

    Args:
        name_in_file: the source's name for a new one.
    """

    def __init__(self, source: TensorSource, name_in_file: Callable[[str], str]) -> None:
        self.location = source.location
        self._source, self._name_in_file = source, name_in_file

    def names(self) -> Collection[str]:
        return self._source.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source.shape(self._name_in_file(name))

    def read_into(self, name: str, out: np.ndarray) -> None:
        self._source.read_into(self._name_in_file(name), out)

    def describe(self, name: str) -> str:
        return self._source.describe(self._name_in_file(name))


def read_shard(
    path: Path, config: Mapping[str, Any], name_in_file: Callable[[str], str]
) -> TensorSource:
    """The numbers of a shard's tensors, by the names that the family declares.

    Args:
        config: `quantization_config`.
    """
    found = ShardFile(path)
    method = METHODS[method_of(config)](config, None)
    is_coded = any(name.endswith(end) for name in found.names() for end in SCALES)
    name = method_of(config)
    return Renamed(QuantizedSource(found, method, name) if is_coded else found, name_in_file)
