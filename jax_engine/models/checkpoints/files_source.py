"""The tensors of a directory's files: safetensors, or PyTorch's pickles, which run no code."""

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.file_schema import dead_links
from jax_engine.models.checkpoints.pytorch.pytorch_file import PytorchFile
from jax_engine.models.checkpoints.safetensors_file import SafetensorsFile
from jax_engine.models.checkpoints.stored_dtypes import read_floats
from jax_engine.models.checkpoints.weight_layouts import (
    Layout,
    chosen_files,
    files_of,
    layout_of,
    left_over,
    read_index,
)

logger = logging.getLogger(__name__)


class TensorFile(Protocol):
    """An open file of tensors."""

    def keys(self) -> Collection[str]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> str: ...
    def raw(self, name: str) -> np.ndarray: ...


class FilesSource:
    """Tensors of one or several files, read one at a time from the mapped file.

    Attributes:
        layout: how the files are named; None for a single file.

    Args:
        location: a model's directory, or one file, all of whose tensors are taken.
        load_format: which files to read, as in `EngineConfig`.

    Raises:
        WeightsError: there is no file, the index is damaged, a shard is missing or cut off, or a
            tensor is not where the index says, or in two files without an index.
    """

    def __init__(self, location: Path, load_format: str = "auto") -> None:
        self.location = location
        self.layout: Layout | None = None
        self._files: dict[str, TensorFile] = {}  # by the tensor's name
        self._paths: dict[str, Path] = {}
        if location.is_file():
            file = open_file(location)
            self._files = dict.fromkeys(file.keys(), file)
            self._paths = dict.fromkeys(file.keys(), location)
            return
        self.layout = layout_of(files_of(location, None), load_format)
        opened, places = _opened(location, self.layout)
        for tensor, name in places.items():
            self._files[tensor], self._paths[tensor] = opened[name], location / name

    def names(self) -> Collection[str]:
        return self._files.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._files[name].shape(name)

    def dtype(self, name: str) -> str:
        """By safetensors' names: "F32", "I8"."""
        return self._files[name].dtype(name)

    def raw(self, name: str) -> np.ndarray:
        """The tensor as it is stored, of any dtype: a view of the mapped file. Thread-safe.

        Raises:
            WeightsError: NumPy with ml_dtypes has no such dtype, or the file is unreadable.
        """
        return self._files[name].raw(name)

    def read_into(self, name: str, out: np.ndarray) -> None:
        read_floats(self, name, out)

    def describe(self, name: str) -> str:
        return f"{self._paths[name]}, tensor {name}"


def open_file(path: Path) -> TensorFile:
    """A file by the end of its name. Raises WeightsError."""
    return SafetensorsFile(path) if path.name.endswith(".safetensors") else PytorchFile(path)


def _opened(directory: Path, layout: Layout) -> tuple[dict[str, TensorFile], Mapping[str, str]]:
    """The files to read, and the file of each tensor. Logs what is left over. Raises WeightsError.

    An index that is stale, because a tensor is not where it says or because it says nothing, counts
    only without a whole file.
    """
    index = read_index(directory, layout)
    names = files_of(directory, index)
    try:
        chosen = chosen_files(names, index, directory, layout)
    except WeightsError as error:
        links = dead_links(directory.glob("*.safetensors"))
        raise WeightsError(f"{error}{links}") from error
    opened = {name: open_file(directory / name) for name in chosen}
    whole, lost = layout.whole, _misplaced(index or {}, opened)
    if index and lost and whole not in names:
        raise WeightsError(
            f"{directory}: {layout.index} names {index[lost]} for tensor {lost}, which is not in "
            "it. Download the model again."
        )
    if lost or index == {}:
        logger.warning("%s: %s is stale, %s is read instead", directory, layout.index, whole)
        index, opened = None, {whole: opened.get(whole) or open_file(directory / whole)}
    places = _places(directory, opened, layout) if index is None else index
    others = left_over(names, opened, layout)
    others += [
        f"{tensor} in {name}, which the index does not name"
        for name, file in opened.items()
        for tensor in sorted(set(file.keys()) - {one for one in places if places[one] == name})
    ]
    if others:
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        logger.warning("%s: not read: %s%s", directory, "; ".join(others[:8]), more)
    return opened, places


def _misplaced(index: Mapping[str, str], opened: Mapping[str, TensorFile]) -> str | None:
    """The first tensor that is not in the file that the index names, if there is one."""
    held = {name: set(file.keys()) for name, file in opened.items()}
    return next((one for one, name in index.items() if one not in held.get(name, ())), None)


def _places(directory: Path, opened: Mapping[str, TensorFile], layout: Layout) -> Mapping[str, str]:
    """The file of each tensor without an index. Raises WeightsError if two files hold one."""
    found: dict[str, str] = {}
    for name, file in opened.items():
        for tensor in file.keys():  # noqa: SIM118  not a mapping
            if tensor in found:
                raise WeightsError(
                    f"{directory}: tensor {tensor} is in {found[tensor]} and in {name}, and there "
                    f"is no {layout.index} to say which is the model's."
                )
            found[tensor] = name
    return found
