"""Reads a GGUF file's metadata and table of tensors; tensor bytes stay mapped.

The `gguf` package's own reader makes several array views for every string of the vocabulary, which
takes seconds; this one unpacks the header with `struct` in a few hundredths of a second. The
package decodes quantised blocks.

A model may be split over several files: the first part has the metadata, each its own tensors.
"""

import dataclasses
import mmap
import re
import struct
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from msgspec import Meta

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.file_schema import checked, describe_broken_file

_SCALARS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
    GGUFValueType.BOOL: "?",
}

# Bounds of a header, so that a damaged count wastes no time or memory. Real files have about fifty
# keys, thousands of tensors, and vocabularies of 300,000 tokens.
MAX_KEYS, MAX_TENSORS, MAX_ITEMS, MAX_DEPTH, MAX_AXES = 1 << 16, 1 << 20, 1 << 24, 4, 8


class _Alignment(msgspec.Struct, frozen=True, rename={"alignment": "general.alignment"}):
    alignment: Annotated[int, Meta(ge=1, le=1 << 20)] = 32


@dataclasses.dataclass(frozen=True)
class GgufTensor:
    """An entry of the tensor table: `shape` in NumPy's order, `offset` in bytes from the start.

    Attributes:
        data: The bytes of the file that holds it, mapped read-only.
    """

    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    num_bytes: int
    data: np.ndarray = dataclasses.field(repr=False, compare=False)


class GgufFile:
    """A GGUF file's metadata and tensors.

    Attributes:
        metadata: value by key; arrays are lists.
        tensors: table entry by tensor name.

    Raises:
        WeightsError: unreadable, cut off, not a GGUF file, or of an unknown version or block type.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise WeightsError(
                f"{path} is unreadable: {error}. {describe_broken_file(path) or ''}".rstrip()
            ) from error
        self._data = np.frombuffer(self._map, np.uint8)
        self._position = 0
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, GgufTensor] = {}
        try:
            self._read_header()
        except (struct.error, UnicodeDecodeError) as error:
            raise WeightsError(
                f"{path}: header cut off or damaged at byte {self._position} of "
                f"{len(self._map)}: {error}. Download the file again."
            ) from error

    def _read_header(self) -> None:
        magic, version = self._map[:4], 0
        if magic == b"GGUF":
            self._position = 4
            version = self._scalar("I")
        if version not in (2, 3):
            raise WeightsError(
                f"{self.path} is not a little-endian GGUF file of version 2 or 3: it starts with "
                f"{magic!r}, version {version}. {self._instead()}".rstrip()
            )
        num_tensors, num_keys = self._scalar("Q"), self._scalar("Q")
        if num_tensors > MAX_TENSORS or num_keys > MAX_KEYS:
            raise struct.error(
                f"{num_tensors} tensors and {num_keys} metadata keys, of which at most "
                f"{MAX_TENSORS} and {MAX_KEYS} are read"
            )
        for _ in range(num_keys):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("I"))
        table = [self._table_entry() for _ in range(num_tensors)]
        alignment = checked(self.metadata, _Alignment, str(self.path), error=WeightsError).alignment
        start = -(-self._position // alignment) * alignment
        for name, type_id, shape, offset in table:
            self.tensors[name] = self._tensor(name, type_id, shape, start + offset)

    def _instead(self) -> str:
        """What to do about a file that is none of GGUF's."""
        if self._map[:1] == b"{" or self._map[8:9] == b"{":  # JSON, or safetensors
            return f"If it is a file of a model's directory, give the directory: {self.path.parent}"
        return describe_broken_file(self.path) or ""

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self._map, self._position)
        self._position += struct.calcsize(f"<{code}")
        return value

    def _string(self) -> str:
        start = self._position + 8
        end = start + self._scalar("Q")
        if end > len(self._map):
            raise struct.error(f"a string ends at byte {end}")
        self._position = end
        return self._map[start:end].decode("utf-8")

    def _value(self, type_id: int, depth: int = 0) -> Any:
        if type_id == GGUFValueType.STRING:
            return self._string()
        if type_id == GGUFValueType.ARRAY:
            return self._array(self._scalar("I"), self._scalar("Q"), depth + 1)
        if type_id not in _SCALARS:
            raise struct.error(f"unknown value type {type_id}")
        return self._scalar(_SCALARS[GGUFValueType(type_id)])

    def _array(self, item_type: int, count: int, depth: int) -> list[Any]:
        """Reads an array, after checking its size against the rest of the file."""
        code = _SCALARS.get(item_type)
        item_bytes = struct.calcsize(f"<{code}") if code else 8  # a string begins with its length
        if depth > MAX_DEPTH or count > MAX_ITEMS:
            raise struct.error(
                f"an array of {count} items, {depth} deep; read are {MAX_ITEMS} and {MAX_DEPTH}"
            )
        if self._position + count * item_bytes > len(self._map):
            raise struct.error(f"an array has {count} items, more than what is left of the file")
        if code is None:
            return [self._value(item_type, depth) for _ in range(count)]
        values = struct.unpack_from(f"<{count}{code}", self._map, self._position)
        self._position += count * item_bytes
        return list(values)

    def _table_entry(self) -> tuple[str, int, tuple[int, ...], int]:
        name, num_axes = self._string(), self._scalar("I")
        if num_axes > MAX_AXES:
            raise struct.error(f"tensor {name} has {num_axes} axes, at most {MAX_AXES} are read")
        fastest_first = [self._scalar("Q") for _ in range(num_axes)]
        return name, self._scalar("I"), tuple(reversed(fastest_first)), self._scalar("Q")

    def _tensor(self, name: str, type_id: int, shape: tuple[int, ...], offset: int) -> GgufTensor:
        try:
            block_type = GGMLQuantizationType(type_id)
            block_size, block_bytes = GGML_QUANT_SIZES[block_type]
        except (ValueError, KeyError) as error:
            raise WeightsError(
                f"{self.path}, tensor {name}: unknown block type {type_id}."
            ) from error
        if not shape or shape[-1] % block_size:
            raise WeightsError(
                f"{self.path}, tensor {name}: shape {shape} is not made of whole "
                f"{block_type.name} blocks of {block_size}."
            )
        num_bytes = int(np.prod(shape, dtype=object)) // block_size * block_bytes
        if offset + num_bytes > len(self._map):
            raise WeightsError(
                f"{self.path} is cut off: tensor {name} ends at byte {offset + num_bytes}, the "
                f"file has {len(self._map)}. Download it again."
            )
        return GgufTensor(block_type, shape, offset, num_bytes, self._data)


NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


class SplitFields(msgspec.Struct, frozen=True, rename={"no": "split.no", "count": "split.count"}):
    """Which part a file is, counted from 0, of how many; a file that is not split has neither."""

    no: Annotated[int, Meta(ge=0, le=99_998)] = 0
    count: Annotated[int, Meta(ge=0, le=99_999)] = 0


def join_parts(file: GgufFile) -> GgufFile:
    """Adds to a split file's first part the tensors of the others, which lie beside it.

    Raises:
        WeightsError: It is not the first part, another is missing, or they do not fit.
    """
    split = _split(file)
    if split.count <= 1:
        return file
    name = NAME.fullmatch(file.path.name)
    if name is None or split.no or (int(name["number"]), int(name["count"])) != (1, split.count):
        raise WeightsError(
            f"{file.path} is part {split.no + 1} of {split.count} of a split GGUF file: give the "
            f"first, whose name ends in -00001-of-{split.count:05}.gguf, with the others beside it."
        )
    for number in range(2, split.count + 1):
        _add(
            file, file.path.with_name(f"{name['stem']}-{number:05}-of-{name['count']}.gguf"), number
        )
    return file


def _add(file: GgufFile, path: Path, number: int) -> None:
    count = _split(file).count
    if not path.is_file():
        raise WeightsError(
            f"{file.path} is split into {count} files, and {path.name} is missing. Download it too."
        )
    part = GgufFile(path)
    twice = sorted(file.tensors.keys() & part.tensors.keys())
    if twice or _split(part) != SplitFields(number - 1, count):
        why = f"tensor {twice[0]} is in both" if twice else "its split.no or split.count is another"
        raise WeightsError(
            f"{path} is not part {number} of {count} of {file.path}: {why}. Download both again."
        )
    file.tensors |= part.tensors


def _split(file: GgufFile) -> SplitFields:
    return checked(file.metadata, SplitFields, str(file.path), WeightsError)
