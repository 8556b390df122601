"""Writes files as `torch.save` does, instruction by instruction, without PyTorch.

`state_dict` is the pickle of a dictionary of tensors; `zipped` and `in_a_row` are a whole file of
the newer and of the older form around a pickle. Tests write hostile pickles of the same parts.
"""

import json
import pickle
import struct
import zipfile
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

STORAGES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}
DTYPES = {np.dtype(ml_dtypes.float8_e4m3fn): "float8_e4m3fn", np.dtype(np.float32): "float32"}
STOP = b"."


class View(NamedTuple):
    """A tensor that is a view of an array's numbers, which others may share."""

    array: np.ndarray
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def values(self) -> np.ndarray:
        flat = self.array.reshape(-1)[self.offset :]
        strides = [one * flat.itemsize for one in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides)


Tensors = Mapping[str, "np.ndarray | View"]


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    """As Python's own pickles have it."""
    return pickle.dumps(value, 2)[2:-1]


def name(module: str, own: str) -> bytes:
    return f"c{module}\n{own}\n".encode()


def of(*items: bytes) -> bytes:
    """A tuple."""
    return b"(" + b"".join(items) + b"t"


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + of(*arguments) + b"R"


def dictionary(items: Mapping[str, bytes]) -> bytes:
    """An OrderedDict with attributes, as a module's `state_dict` is."""
    pairs = b"".join(text(key) + value for key, value in items.items())
    attributes = b"}" + text("_metadata") + call(name("collections", "OrderedDict")) + b"sb"
    return call(name("collections", "OrderedDict")) + b"(" + pairs + b"u" + attributes


def storage(kind: str, key: str, size: int, *more: bytes) -> bytes:
    """A persistent id."""
    module = "torch.storage" if kind == "UntypedStorage" else "torch"
    fields = (text("storage"), name(module, kind), text(key), text("cpu"), number(size))
    return of(*fields, *more) + b"Q"


def tensor(
    data: bytes,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int = 0,
    dtype: str | None = None,
) -> bytes:
    """A tensor of a storage; with a dtype, of one of bytes."""
    sizes = [of(*map(number, one)) for one in (shape, strides)]
    hooks = call(name("collections", "OrderedDict"))
    rebuild = "_rebuild_tensor_v2" if dtype is None else "_rebuild_tensor_v3"
    more = () if dtype is None else (name("torch", dtype),)
    return call(name("torch._utils", rebuild), data, number(offset), *sizes, b"\x89", hooks, *more)


def contiguous(shape: Sequence[int]) -> list[int]:
    """The strides of a tensor in order, in numbers."""
    return [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]


def state_dict(
    tensors: Tensors, *, old: bool = False, parameters: bool = False
) -> tuple[bytes, dict[str, bytes]]:
    """The pickle, and the bytes of the storages by key. Arrays that are one share a storage."""
    keys = dict[int, str]()
    data, items = dict[str, bytes](), dict[str, bytes]()
    for label, value in tensors.items():
        view = value if isinstance(value, View) else None
        array = value.array if isinstance(value, View) else value
        key = keys.setdefault(id(array), str(len(keys)))
        data[key] = array.tobytes()
        typed = STORAGES.get(array.dtype.name)
        size = array.size if typed else array.nbytes
        held = storage(typed or "UntypedStorage", key, size, *((b"N",) if old else ()))
        shape = view.shape if view else array.shape
        strides = view.strides if view else contiguous(array.shape)
        dtype = None if typed else DTYPES[array.dtype]
        made = tensor(held, shape, strides, view.offset if view else 0, dtype)
        if parameters:
            hooks = call(name("collections", "OrderedDict"))
            made = call(name("torch._utils", "_rebuild_parameter"), made, b"\x88", hooks)
        items[label] = made
    return b"\x80\x02" + dictionary(items) + STOP, data


def zipped(
    pickled: bytes,
    data: Mapping[str, bytes],
    *,
    folder: str = "archive",
    order: str | None = "little",
    method: int = zipfile.ZIP_STORED,
) -> bytes:
    """The newer form: a zip archive."""
    out = BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(f"{folder}/data.pkl", pickled)
        if order is not None:
            archive.writestr(f"{folder}/byteorder", order)
        for key, one in data.items():
            archive.writestr(f"{folder}/data/{key}", one)
        archive.writestr(f"{folder}/version", "3\n")
    return out.getvalue()


def in_a_row(
    pickled: bytes, data: Mapping[str, bytes], sizes: Mapping[str, int], *, little: bool = True
) -> bytes:
    """The older form: pickles, and the storages behind them with their sizes in numbers."""
    machine = {"protocol_version": 1001, "little_endian": little, "type_sizes": {"int": 4}}
    before = [pickle.dumps(one, 2) for one in (0x1950A86A20F9469CFC6C, 1001, machine)]
    behind = [struct.pack("<q", sizes[key]) + one for key, one in data.items()]
    return b"".join([*before, pickled, pickle.dumps(list(data), 2), *behind])


def write_pytorch(path: Path, tensors: Tensors, *, old: bool = False) -> Path:
    """A file of tensors."""
    pickled, data = state_dict(tensors, old=old)
    if not old:
        path.write_bytes(zipped(pickled, data))
        return path
    arrays = [one.array if isinstance(one, View) else one for one in tensors.values()]
    distinct = list({id(one): one for one in arrays}.values())
    sizes = {key: one.size for key, one in zip(data, distinct, strict=True)}
    path.write_bytes(in_a_row(pickled, data, sizes))
    return path


def write_pytorch_model(
    folder: Path, config: Mapping[str, object], tensors: Tensors, num_shards: int = 1
) -> Path:
    """config.json, and pytorch_model.bin or shards and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if num_shards == 1:
        write_pytorch(folder / "pytorch_model.bin", tensors)
        return folder
    places = dict[str, str]()
    for shard in range(num_shards):
        file = f"pytorch_model-{shard + 1:05}-of-{num_shards:05}.bin"
        part = dict(list(tensors.items())[shard::num_shards])
        write_pytorch(folder / file, part)
        places |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": places}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return folder
