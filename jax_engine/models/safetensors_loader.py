"""Weights of a directory in Hugging Face layout: model.safetensors, or shards and their index."""

import logging
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 with NumPy, which safetensors then returns
import numpy as np
from safetensors import SafetensorError, safe_open

from jax_engine.broken_file import dead_links, what_instead
from jax_engine.errors import WeightsError
from jax_engine.models.safetensors_raw import RawFile
from jax_engine.models.weight_files import (
    INDEX,
    WHOLE,
    chosen_files,
    files_of,
    left_over,
    read_index,
)

SUPPORTED_DTYPES = ("F64", "F32", "F16", "BF16")

logger = logging.getLogger(__name__)


class SafetensorsSource:
    """Tensors of one or several safetensors files, read one at a time from the mapped file.

    Args:
        location: a model's directory, or one file, all of whose tensors are taken.

    Raises:
        WeightsError: there is no file, the index is damaged, a shard is missing or cut off, or a
            tensor is not where the index says, or in two files without an index.
    """

    def __init__(self, location: Path):
        self.location = location
        self._files: dict[str, Any] = {}  # tensor name -> open file
        self._paths: dict[str, Path] = {}
        self._raw: dict[Path, RawFile] = {}  # opened when first read
        self._opening = threading.Lock()
        if location.is_file():
            file = _open(location)
            self._files = dict.fromkeys(file.keys(), file)
            self._paths = dict.fromkeys(file.keys(), location)
            return
        opened, places = _opened(location)
        for tensor, name in places.items():
            self._files[tensor], self._paths[tensor] = opened[name], location / name

    def names(self) -> Collection[str]:
        return self._files.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._files[name].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """What the file calls the dtype: "F32", "I8"."""
        return str(self._files[name].get_slice(name).get_dtype())

    def raw(self, name: str) -> np.ndarray:
        """The tensor as it is stored, of any dtype: a view of the mapped file. Thread-safe.

        Raises:
            WeightsError: NumPy with ml_dtypes has no such dtype, or the file is unreadable.
        """
        path = self._paths[name]
        with self._opening:
            if path not in self._raw:
                self._raw[path] = RawFile(path)
        return self._raw[path].read(name)

    def read_into(self, name: str, out: np.ndarray) -> None:
        stored = self.dtype(name)
        if stored not in SUPPORTED_DTYPES:
            raise WeightsError(
                f"{self.describe(name)}: dtype {stored} is not supported; "
                f"known: {', '.join(SUPPORTED_DTYPES)}."
            )
        with np.errstate(over="ignore"):  # what becomes infinite is refused by who asked for it
            out[...] = self.raw(name)  # safe_open would copy the file's numbers first

    def describe(self, name: str) -> str:
        return f"{self._paths[name]}, tensor {name}"


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        size = path.stat().st_size if path.exists() else 0
        raise WeightsError(
            f"{path} ({size} bytes) is not a whole safetensors file: {error}. "
            f"{what_instead(path) or 'Download it again.'}"
        ) from error


def _opened(directory: Path) -> tuple[dict[str, Any], Mapping[str, str]]:
    """The files to read, and the file of each tensor. Logs what is left over. Raises WeightsError.

    An index that is stale, because a tensor is not where it says or because it says nothing, counts
    only without a whole file.
    """
    index = read_index(directory)
    names = files_of(directory, index)
    try:
        chosen = chosen_files(names, index, directory)
    except WeightsError as error:
        raise WeightsError(f"{error}{dead_links(directory.glob('*.safetensors'))}") from error
    opened = {name: _open(directory / name) for name in chosen}
    lost = _misplaced(index or {}, opened)
    if index and lost and WHOLE not in names:
        raise WeightsError(
            f"{directory}: {INDEX} names {index[lost]} for tensor {lost}, which is not in it. "
            "Download the model again."
        )
    if lost or index == {}:
        logger.warning("%s: %s is stale, %s is read instead", directory, INDEX, WHOLE)
        index, opened = None, {WHOLE: opened.get(WHOLE) or _open(directory / WHOLE)}
    places = _places(directory, opened) if index is None else index
    others = left_over(names, opened)
    others += [
        f"{tensor} in {name}, which the index does not name"
        for name, file in opened.items()
        for tensor in sorted(set(file.keys()) - {one for one in places if places[one] == name})
    ]
    if others:
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        logger.warning("%s: not read: %s%s", directory, "; ".join(others[:8]), more)
    return opened, places


def _misplaced(index: Mapping[str, str], opened: Mapping[str, Any]) -> str | None:
    """The first tensor that is not in the file that the index names, if there is one."""
    held = {name: set(file.keys()) for name, file in opened.items()}
    return next((one for one, name in index.items() if one not in held.get(name, ())), None)


def _places(directory: Path, opened: Mapping[str, Any]) -> Mapping[str, str]:
    """The file of each tensor without an index. Raises WeightsError if two files hold one."""
    found: dict[str, str] = {}
    for name, file in opened.items():
        for tensor in file.keys():  # noqa: SIM118  not a mapping
            if tensor in found:
                raise WeightsError(
                    f"{directory}: tensor {tensor} is in {found[tensor]} and in {name}, and there "
                    f"is no {INDEX} to say which is the model's."
                )
            found[tensor] = name
    return found
