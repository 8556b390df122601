"""Weights of a directory in Hugging Face layout: model.safetensors, or shards and their index.

A file is eight bytes with the header's length, the header in JSON, and the numbers. `safe_open`
gives NumPy arrays only of dtypes that NumPy knows, but scales and weights may be floats of 8 bits.
So `RawFile` has tensors as they are stored: codes of any dtype, mapped and not copied.
"""

import json
import logging
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.file_schema import dead_links, describe_broken_file
from jax_engine.models.checkpoints.resolve import (
    INDEX,
    WHOLE,
    chosen_files,
    files_of,
    left_over,
    read_index,
)

DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}


class RawFile:
    """A safetensors file that `safe_open` has checked, mapped into memory.

    Raises:
        WeightsError: it has changed since then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._bytes = np.memmap(path, np.uint8, "r")
            self._start = 8 + int(self._bytes[:8].view("<u8")[0])
            self._header: dict[str, Any] = json.loads(self._bytes[8 : self._start].tobytes())
        except (OSError, ValueError) as error:
            raise WeightsError(f"{path} is unreadable: {error}.") from error

    def read(self, name: str) -> np.ndarray:
        """A view of the file, which cannot be written to. Raises WeightsError."""
        entry = self._header[name]
        dtype, shape = DTYPES.get(entry["dtype"]), tuple(entry["shape"])
        if dtype is None:
            raise WeightsError(
                f"{self._path}, tensor {name}: dtype {entry['dtype']} is not supported; "
                f"known: {', '.join(DTYPES)}."
            )
        start, stop = (self._start + offset for offset in entry["data_offsets"])
        return self._bytes[start:stop].view(np.ndarray).view(dtype).reshape(shape)


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
            f"{describe_broken_file(path) or 'Download it again.'}"
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
