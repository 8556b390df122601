"""One file of PyTorch's: the tensors of a `state_dict` by name, mapped into memory.

Since version 1.6 such a file is a zip archive: data.pkl has the dictionary, data/KEY a storage.
Before, it was a row of pickles: a magic number, the protocol, the machine, the dictionary, the keys
of storages, and behind them each storage, its size before it.
"""

import math
import struct
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.file_schema import describe_broken_file
from jax_engine.models.checkpoints.pytorch.pickle_reader import MAX_BYTES, read_pickle
from jax_engine.models.checkpoints.pytorch.state_dict import (
    NAMES,
    Storage,
    StoredTensor,
    storage_of,
)
from jax_engine.models.checkpoints.pytorch.zip_archive import ZipArchive, bytes_of
from jax_engine.models.checkpoints.stored_dtypes import DTYPES

_ZIP, _PICKLE = b"PK\3\4", b"\x80"
_MAGIC = 0x1950A86A20F9469CFC6C
_OLD_PROTOCOL = 1001
MAX_TENSOR_PICKLE = 64 << 10  # that of one tensor has some hundred bytes
_AGAIN = "Download it again, or save the model as safetensors."


class PytorchFile:
    """A file that `torch.save` wrote of a dictionary of tensors. Reading runs none of its code.

    Raises:
        WeightsError: it is damaged, is something else, or its pickle asks for another name than
            those of tensors.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sound = set[str]()  # storages whose checksum is right
        try:
            self._storages, value = _open(path)
            self._tensors = dict(_tensors(value))
        except (OSError, ValueError) as error:
            raise WeightsError(
                f"{path} is no PyTorch file that is read: {error}. {_describe(path) or _AGAIN}"
            ) from error

    def keys(self) -> Collection[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def dtype(self, name: str) -> str:
        """As safetensors calls it: "F32", "I8"."""
        return self._tensors[name].dtype

    def raw(self, name: str) -> np.ndarray:
        """A view of the file, which cannot be written to. Thread-safe. Raises WeightsError."""
        try:
            return _view(self._tensors[name], self._data)
        except ValueError as error:
            raise WeightsError(f"{self._path}, tensor {name}: {error}. {_AGAIN}") from error

    def _data(self, storage: Storage) -> np.ndarray:
        """A storage's bytes, whose checksum is compared once. Raises ValueError."""
        found = self._storages.read(storage, check=storage.key not in self._sound)
        self._sound.add(storage.key)
        return found


def read_tensor(data: bytes) -> np.ndarray:
    """The one tensor that `torch.save` wrote, by a view of these bytes. Runs none of their code.

    Whoever sent them must not be trusted: what is read takes no more memory than they do.

    Raises:
        ValueError: They are something else, or damaged.
    """
    storages, value = _open(data, MAX_TENSOR_PICKLE)
    if type(value) is not StoredTensor:
        raise ValueError(f"they hold a {type(value).__name__}, not a tensor")
    dtype = DTYPES[value.dtype]
    if max(math.prod(value.shape) * dtype.itemsize, value.storage.num_bytes) > len(data):
        raise ValueError("they hold a tensor that is compressed, or repeats its numbers")
    return _view(value, lambda storage: storages.read(storage, check=True))


def _view(tensor: StoredTensor, read: Callable[[Storage], np.ndarray]) -> np.ndarray:
    """A tensor's numbers in its storage, which cannot be written to. Raises what `read` does."""
    dtype = DTYPES[tensor.dtype]
    if 0 in tensor.shape:
        return np.empty(tensor.shape, dtype)
    data = read(tensor.storage)
    numbers = data[: len(data) // dtype.itemsize * dtype.itemsize].view(dtype)
    strides = [stride * dtype.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(
        numbers[tensor.offset :], tensor.shape, strides, writeable=False
    )


class _Zipped:
    """The storages of a zip archive, each a member."""

    def __init__(self, archive: ZipArchive, folder: str) -> None:
        self._archive, self._folder = archive, folder

    def open(self, found: object) -> Storage:
        """The storage of a persistent id. Raises ValueError if it is not there as a whole."""
        storage = storage_of(found)
        member = self._archive.members.get(self._member(storage))
        if member is None or member.size != storage.num_bytes:
            held = "is not in the archive" if member is None else f"has {member.size} bytes there"
            raise ValueError(f"storage {storage.key[:40]!r} of {storage.num_bytes} bytes {held}")
        return storage

    def read(self, storage: Storage, *, check: bool) -> np.ndarray:
        """Its bytes. Raises ValueError if they are damaged."""
        return self._archive.read(self._member(storage), check=check)

    def _member(self, storage: Storage) -> str:
        return f"{self._folder}data/{storage.key}"


class _InARow:
    """The storages of an older file, one behind another."""

    def __init__(self, data: np.ndarray) -> None:
        self._bytes = data
        self._opened, self._places = dict[str, Storage](), dict[str, slice]()

    def open(self, found: object) -> Storage:
        """The storage of a persistent id. Raises ValueError if it has another size elsewhere."""
        storage = storage_of(found)
        if self._opened.setdefault(storage.key, storage) != storage:
            raise ValueError(f"storage {storage.key[:40]!r} is there with two sizes or dtypes")
        if storage.num_bytes > len(self._bytes):
            raise ValueError(f"storage {storage.key[:40]!r} is larger than the file")
        return storage

    def place(self, keys: object, position: int) -> None:
        """Finds the storages, which begin at a position. Raises ValueError."""
        if type(keys) is not list or not all(type(key) is str for key in keys):
            raise ValueError("its list of storages is damaged")
        for key in keys:
            storage = self._opened.get(key)
            if storage is None or key in self._places:
                raise ValueError(f"its list of storages has {key[:40]!r}, which no tensor has")
            start = position + 8
            size = self._bytes[position:start].tobytes()
            position = start + storage.num_bytes
            if size != struct.pack("<q", storage.size) or position > len(self._bytes):
                raise ValueError(f"storage {key[:40]!r} is cut off or has another size")
            self._places[key] = slice(start, position)
        lost = next((key for key in self._opened if key not in self._places), None)
        if lost is not None:
            raise ValueError(f"storage {lost[:40]!r} is not in the file")

    def read(self, storage: Storage, *, check: bool) -> np.ndarray:
        """Its bytes, for which such a file has no checksum."""
        return self._bytes[self._places[storage.key]]


def _open(source: Path | bytes, most: int = MAX_BYTES) -> tuple[_Zipped | _InARow, object]:
    """The storages of a file, and the value of its pickle. Raises OSError, ValueError.

    Args:
        most: The bytes that its pickle may have.
    """
    if isinstance(source, bytes):
        start = source[:4]
    else:
        with source.open("rb") as file:
            start = file.read(4)
    if start == _ZIP:
        return _open_zip(source, most)
    if start.startswith(_PICKLE):
        return _open_row(source, most)
    raise ValueError("it begins neither as a zip archive nor as a pickle")


def _open_zip(source: Path | bytes, most: int) -> tuple[_Zipped, object]:
    archive = ZipArchive(source)
    pickles = [name for name in archive.members if name.split("/")[1:] == ["data.pkl"]]
    if len(pickles) != 1:
        raise ValueError(f"the zip archive has {len(pickles)} members data.pkl; expected one")
    folder = pickles[0].removesuffix("data.pkl")
    size = archive.members[pickles[0]].size
    if size > most:
        raise ValueError(f"its pickle has {size} bytes; at most {most} are read")
    order = f"{folder}byteorder"
    if order in archive.members:
        _check_order(
            archive.members[order].size < 16 and archive.read(order).tobytes() == b"little"
        )
    storages = _Zipped(archive, folder)
    data = archive.read(pickles[0]).tobytes()
    return storages, read_pickle(data, NAMES, storages.open).value


def _open_row(source: Path | bytes, most: int) -> tuple[_InARow, object]:
    data = bytes_of(source)
    pickles, storages = data[:most].tobytes(), _InARow(data)
    found, position = list[object](), 0
    for _ in range(5):
        value, position = read_pickle(pickles, NAMES, storages.open, position)
        found.append(value)
        if found[:2] != [_MAGIC, _OLD_PROTOCOL][: len(found)]:
            raise ValueError("it is a pickle, but not of tensors that torch.save wrote")
    _, _, machine, value, keys = found
    _check_order(isinstance(machine, dict) and machine.get("little_endian") is True)
    storages.place(keys, position)
    return storages, value


def _check_order(is_little: bool) -> None:
    if not is_little:
        raise ValueError("its numbers are in the byte order of another machine (big-endian)")


def _tensors(value: object) -> Iterator[tuple[str, StoredTensor]]:
    """The tensors of a dictionary. Raises ValueError if it has something else."""
    if type(value) is not dict:
        raise ValueError(f"it holds a {type(value).__name__}, not a dictionary of tensors")
    for name, tensor in value.items():
        if type(name) is not str or type(tensor) is not StoredTensor:
            inside = "; save that dictionary alone" if type(tensor) is dict else ""
            raise ValueError(
                f"under {str(name)[:80]!r} it holds a {type(tensor).__name__}, not a tensor{inside}"
            )
        yield name, tensor


def _describe(path: Path) -> str | None:
    """What the file is instead, unless it is a zip archive, which a whole one is too."""
    found = describe_broken_file(path)
    return None if found is None or "zip archive" in found else found
