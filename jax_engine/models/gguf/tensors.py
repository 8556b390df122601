"""The tensors of a GGUF file, decoded, under their own names and in their own layout."""

import math
import re
from collections.abc import Collection

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from jax_engine.errors import WeightsError
from jax_engine.models.gguf.codes import layout_of, read_rows
from jax_engine.models.gguf_file import GgufFile
from jax_engine.weights.codes import Kind

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
