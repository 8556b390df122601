"""The tensors of a GGUF file in their own names and layout: as numbers, or as rows of codes.

Blocks become rows of codes. Simple blocks hold 32 numbers with a float16 scale, and a minimum where
their name ends in 1. K-quants hold 256 in groups of 16 or 32, whose scales and minimums are small
whole numbers, and have a float16 factor for each. The layouts are those of ggml's `ggml-common.h`.
"""

import math
import re
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.weights.codes import INT8, Kind

BLOCK, SUPER = 32, 256
_NIBBLES = tuple(float(code) for code in range(16))
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


class Parts(NamedTuple):
    """The fields of blocks [n, bytes]: codes of all numbers, and numbers of groups."""

    codes: np.ndarray
    scales: np.ndarray
    minimums: np.ndarray | None = None
    outer_scales: np.ndarray | None = None
    outer_minimums: np.ndarray | None = None


class Layout(NamedTuple):
    """The kind of a block type's rows, and how to take its blocks apart."""

    kind: Kind
    parts: Callable[[np.ndarray], Parts]


def layout_of(block_type: GGMLQuantizationType) -> Layout | None:
    """None: the type's numbers are decoded by the gguf package."""
    return LAYOUTS.get(block_type.name)


def read_rows(raw: np.ndarray, block_type: GGMLQuantizationType, out: np.ndarray) -> None:
    """Takes rows of blocks apart.

    Args:
        raw: uint8 [rows, bytes].
        out: records [rows], all fields but `kind`.
    """
    layout = LAYOUTS[block_type.name]
    found = layout.parts(raw.reshape(-1, GGML_QUANT_SIZES[block_type][1]))
    for name, values in found._asdict().items():
        if values is not None:
            each = values.reshape(len(out), -1)
            out[name][:, : each.shape[1]] = each


def _cut(raw: np.ndarray, *sizes: int) -> list[np.ndarray]:
    """The fields of blocks, one after another."""
    return np.split(raw, np.cumsum(sizes)[:-1], axis=1)


def _halves(raw: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def _planes(raw: np.ndarray, bits: int, size: int) -> np.ndarray:
    """Codes of which `size` bytes hold the low bits of the first `size`, then of the next."""
    per_byte = 8 // bits
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    spread = raw.reshape(len(raw), -1, 1, size) >> shifts & np.uint8(2**bits - 1)
    return spread.reshape(len(raw), raw.shape[1] * per_byte)


def _q4_0(raw: np.ndarray) -> Parts:
    scale, codes = _cut(raw, 2, 16)
    return Parts(_planes(codes, 4, 16), _halves(scale))


def _q4_1(raw: np.ndarray) -> Parts:
    scale, lowest, codes = _cut(raw, 2, 2, 16)
    return Parts(_planes(codes, 4, 16), _halves(scale), _halves(lowest))


def _fifth(raw: np.ndarray) -> np.ndarray:
    """Bit i of four bytes is the fifth bit of code i."""
    return np.unpackbits(np.ascontiguousarray(raw), axis=1, bitorder="little") << 4


def _q5_0(raw: np.ndarray) -> Parts:
    scale, high, low = _cut(raw, 2, 4, 16)
    return Parts((_planes(low, 4, 16) | _fifth(high)) - np.uint8(16), _halves(scale))


def _q5_1(raw: np.ndarray) -> Parts:
    scale, lowest, high, low = _cut(raw, 2, 2, 4, 16)
    return Parts(_planes(low, 4, 16) | _fifth(high), _halves(scale), _halves(lowest))


def _q8_0(raw: np.ndarray) -> Parts:
    scale, codes = _cut(raw, 2, 32)
    return Parts(codes, _halves(scale))


def _q2_k(raw: np.ndarray) -> Parts:
    small, codes, scale, lowest = _cut(raw, 16, 64, 2, 2)
    return Parts(_planes(codes, 2, 32), small & 15, small >> 4, _halves(scale), -_halves(lowest))


def _q3_k(raw: np.ndarray) -> Parts:
    high, low, small, scale = _cut(raw, 32, 64, 12, 2)
    codes = (_planes(low, 2, 32) | _planes(high, 1, 32) << 2) - np.uint8(4)
    four, two = _planes(small[:, :8], 4, 8), _planes(small[:, 8:], 2, 4)
    return Parts(codes, (four | two << 4) - np.float32(32), None, _halves(scale))


def _scales_and_minimums(small: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eight each for Q4_K and Q5_K, in 6 bits. The last four have their high bits elsewhere."""
    first, second, last = small[:, :4], small[:, 4:8], small[:, 8:]
    scales = [first & 63, last & 15 | first >> 6 << 4]
    lowest = [second & 63, last >> 4 | second >> 6 << 4]
    return np.concatenate(scales, axis=1), np.concatenate(lowest, axis=1)


def _q4_k(raw: np.ndarray) -> Parts:
    scale, lowest, small, codes = _cut(raw, 2, 2, 12, 128)
    groups = _scales_and_minimums(small)
    return Parts(_planes(codes, 4, 32), *groups, _halves(scale), -_halves(lowest))


def _q5_k(raw: np.ndarray) -> Parts:
    scale, lowest, small, high, low = _cut(raw, 2, 2, 12, 32, 128)
    codes = _planes(low, 4, 32) | _planes(high, 1, 32) << 4
    return Parts(codes, *_scales_and_minimums(small), _halves(scale), -_halves(lowest))


def _q6_k(raw: np.ndarray) -> Parts:
    low, high, small, scale = _cut(raw, 128, 64, 16, 2)
    codes = (_planes(low, 4, 64) | _planes(high, 2, 32) << 4) - np.uint8(32)
    return Parts(codes, np.ascontiguousarray(small).view(np.int8), None, _halves(scale))


def _iq4_xs(raw: np.ndarray) -> Parts:
    scale, high, low, codes = _cut(raw, 2, 2, 4, 128)
    scales = (_planes(low, 4, 1) | _planes(high, 2, 1) << 4) - np.float32(32)
    return Parts(_planes(codes, 4, 16), scales, None, _halves(scale))


LAYOUTS = {
    "Q4_0": Layout(Kind(tuple(c - 8 for c in _NIBBLES), BLOCK, False, "float16"), _q4_0),
    "Q4_1": Layout(Kind(_NIBBLES, BLOCK, True, "float16"), _q4_1),
    "Q5_0": Layout(Kind(INT8, BLOCK, False, "float16"), _q5_0),
    "Q5_1": Layout(Kind(INT8, BLOCK, True, "float16"), _q5_1),
    "Q8_0": Layout(Kind(INT8, BLOCK, False, "float16"), _q8_0),
    "IQ4_NL": Layout(Kind(tuple(map(float, _IQ4)), BLOCK, False, "float16"), _q4_0),
    "IQ4_XS": Layout(
        Kind(tuple(map(float, _IQ4)), BLOCK, scale_dtype="float16", outer=SUPER), _iq4_xs
    ),
    "Q2_K": Layout(Kind(_NIBBLES, 16, True, scale_dtype="float16", outer=SUPER), _q2_k),
    "Q3_K": Layout(Kind(INT8, 16, scale_dtype="float16", outer=SUPER), _q3_k),
    "Q4_K": Layout(Kind(_NIBBLES, BLOCK, True, scale_dtype="float16", outer=SUPER), _q4_k),
    "Q5_K": Layout(Kind(INT8, BLOCK, True, scale_dtype="float16", outer=SUPER), _q5_k),
    "Q6_K": Layout(Kind(INT8, 16, scale_dtype="float16", outer=SUPER), _q6_k),
}


# All that llama.cpp writes for the models that are read here; an old gguf package may lack some.
_NAMES = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0", "MXFP4"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
)
SUPPORTED_TYPES = tuple(
    GGMLQuantizationType[name] for name in _NAMES if name in GGMLQuantizationType.__members__
)
_ELEMENT = re.compile(r"(.+)\[(\d+)\]")
_CHUNK = 1 << 17  # values decoded at a time


def decode(file: GgufFile, name: str, start: int, stop: int) -> np.ndarray:
    """Values start..stop - 1 of a tensor in float32, flat; both are multiples of its block size.

    Raises:
        WeightsError: The tensor's block type is not supported.
    """
    tensor = file.tensors[name]
    if tensor.type not in SUPPORTED_TYPES:
        known = ", ".join(one.name for one in SUPPORTED_TYPES)
        raise WeightsError(
            f"{file.path}, tensor {name}: block type {tensor.type.name} is not supported; "
            f"known: {known}."
        )
    block_size, block_bytes = GGML_QUANT_SIZES[tensor.type]
    first = tensor.offset + start // block_size * block_bytes
    raw = tensor.data[first : tensor.offset + stop // block_size * block_bytes]
    values: np.ndarray = dequantize(raw[None], tensor.type)
    return values.reshape(-1)


class GgufTensors:
    """The decoded tensors. `name[3]` is an element of one: an expert's matrix."""

    def __init__(self, file: GgufFile):
        self.location = file.path
        self._file = file

    def names(self) -> Collection[str]:
        return self._file.tensors.keys()

    def has(self, name: str) -> bool:
        """Whether there is such a tensor, or such an element of one."""
        stem, element = self._part(name)
        tensor = self._file.tensors.get(stem)
        return tensor is not None and (element is None or element < tensor.shape[0])

    def shape(self, name: str) -> tuple[int, ...]:
        stem, element = self._part(name)
        shape = self._file.tensors[stem].shape
        return shape if element is None else shape[1:]

    def describe(self, name: str) -> str:
        return f"{self.location}, tensor {name}"

    def kind(self, name: str) -> Kind | None:
        """How its rows are coded; None: it is read as numbers only."""
        layout = layout_of(self._file.tensors[self._part(name)[0]].type)
        return None if layout is None else layout.kind

    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of all tensors, in the order of the file."""
        found = dict.fromkeys(map(self.kind, self.names()))
        return tuple(kind for kind in found if kind is not None)

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Decodes chunk by chunk, so that the temporaries stay in the CPU's cache."""
        if out.dtype.fields is not None:
            self._read_rows(name, out)
            return
        stem, element = self._part(name)
        first = (element or 0) * math.prod(self.shape(name))
        contiguous = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        flat = contiguous.reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            stop = min(start + _CHUNK, flat.size)
            flat[start:stop] = decode(self._file, stem, first + start, first + stop)
        if contiguous is not out:
            out[...] = contiguous

    def _read_rows(self, name: str, out: np.ndarray) -> None:
        """Reads rows of codes, some at a time."""
        stem, element = self._part(name)
        tensor, kind = self._file.tensors[stem], self.kind(name)
        assert kind is not None
        flat = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        rows = flat.reshape(-1)
        row_bytes = tensor.num_bytes // math.prod(tensor.shape[:-1])
        start = tensor.offset + (element or 0) * len(rows) * row_bytes
        raw = tensor.data[start : start + len(rows) * row_bytes].reshape(len(rows), row_bytes)
        step = max(_CHUNK // tensor.shape[-1], 1)
        for first in range(0, len(rows), step):
            read_rows(raw[first : first + step], tensor.type, rows[first : first + step])
        rows["kind"] = self.kinds().index(kind)
        if flat is not out:
            out[...] = flat

    def _part(self, name: str) -> tuple[str, int | None]:
        """The tensor that a name means, and which element of it; None: the whole."""
        found = None if name in self._file.tensors else _ELEMENT.fullmatch(name)
        return (name, None) if found is None else (found[1], int(found[2]))
