"""Writes quantised checkpoints: tensors of any dtype, which `safetensors.numpy` does not write."""

import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jax_engine.models.checkpoints.files_source import FilesSource
from jax_engine.models.checkpoints.quantization.quantized_source import (
    QuantizedSource,
    open_quantized,
)
from jax_engine.models.checkpoints.stored_dtypes import DTYPES
from jax_engine.weights.codes import numbers, row_dtype
from reference.quantization import nf4

GOLDEN = Path(__file__).parents[1] / "golden" / "quantised.npz"
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Stored(NamedTuple):
    """Bytes, and the name of the dtype that they have in the file."""

    data: np.ndarray
    dtype: str


Tensors = dict[str, np.ndarray | Stored]


def write_file(path: Path, tensors: Tensors) -> Path:
    """A safetensors file."""
    header: dict[str, Any] = {}
    data = b""
    for name, value in tensors.items():
        array, dtype = value if isinstance(value, Stored) else (value, NAMES[value.dtype])
        raw = np.ascontiguousarray(array).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def opened(
    directory: Path,
    tensors: Tensors,
    quantization: dict[str, Any],
    wanted: str | None = None,
    **config: Any,
) -> QuantizedSource:
    """The source of a checkpoint with these tensors and `quantization_config`."""
    directory.mkdir(exist_ok=True)
    write_file(directory / "model.safetensors", tensors)
    whole = {"quantization_config": quantization, **config}
    source = open_quantized(FilesSource(directory), whole, wanted)
    assert isinstance(source, QuantizedSource)
    return source


def module(name: str, parts: dict[str, Any]) -> Tensors:
    """A module's parts by their whole names; None is no tensor."""
    return {f"{name}.{end}": value for end, value in parts.items() if value is not None}


def read(source: QuantizedSource, name: str, dtype: Any = np.float32) -> np.ndarray:
    """The numbers of a tensor, in their columns' own order."""
    out = np.full(source.shape(name), np.nan, dtype)
    source.read_into(name, out)
    return out


def row_shape(source: QuantizedSource, name: str) -> tuple[tuple[int, ...], int]:
    """The shape of records of a tensor's rows, and how many columns each has."""
    *stack, first, last = source.shape(name)
    rows, size = (last, first) if source.turned(name) else (first, last)
    return (*stack, rows), size


def read_rows(source: QuantizedSource, name: str) -> np.ndarray:
    """What rows of codes stand for, in the columns' own order; every field is written."""
    assert source.kind(name) in source.kinds
    shape, size = row_shape(source, name)
    rows = np.empty(shape, row_dtype(source.kinds, size))
    rows.view(np.uint8)[...] = 0xAB
    source.read_into(name, rows)
    found = numbers(rows, source.kinds)
    order = source.order(name)
    if order is None:
        return found
    put_back = np.empty_like(found)
    put_back[..., order] = found
    return put_back


def state_of(stored: nf4.Tensors, **more: Any) -> np.ndarray:
    state: dict[str, Any] = {"quant_type": "nf4", "blocksize": 64, "shape": list(stored.shape)}
    if stored.nested is not None:
        state |= {"nested_blocksize": 256, "nested_offset": float(stored.nested.offset)}
    return np.frombuffer(json.dumps(state | {"dtype": "bfloat16"} | more).encode(), np.uint8)


def nf4_parts(stored: nf4.Tensors) -> dict[str, Any]:
    """A module's parts as bitsandbytes names them."""
    parts: dict[str, Any] = {
        "weight": stored.weight,
        "weight.absmax": stored.absmax,
        "weight.quant_map": stored.quant_map,
        "weight.quant_state.bitsandbytes__nf4": state_of(stored),
    }
    if stored.nested is not None:
        parts["weight.nested_absmax"] = stored.nested.absmax
        parts["weight.nested_quant_map"] = stored.nested.quant_map
    return parts
