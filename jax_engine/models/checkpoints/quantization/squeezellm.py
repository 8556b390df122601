"""SqueezeLLM: a table of numbers for each output, and outliers in a sparse matrix.

    qweight       int32[K b / 32, N]   codes of 3 or 4 bits, of an output a stream
    lookup_table  float[N, 2^b]        what the codes of an output stand for
    rows          int32[N + 1]         the sparse matrix in CSR form: where each output begins,
    cols          int32[outliers]      the inputs,
    vals          float[outliers]      and what is added to the number from the table

There are no rows of codes: each row has a table of its own.
"""

import functools
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from jax_engine.models.checkpoints.quantization.matrices import Plain, unpack_stream
from jax_engine.models.checkpoints.quantization.method import (
    FLOATS,
    Method,
    Parts,
    require,
    settings,
)

QWEIGHT, TABLE, ROWS, COLS, VALS = ".qweight", ".lookup_table", ".rows", ".cols", ".vals"
DENSE = ".full_rows"
ENDS = (QWEIGHT, TABLE, ROWS, COLS, VALS, DENSE, ".full_row_indices")
BITS = (3, 4)


class Fields(msgspec.Struct, frozen=True):
    """quantization_config."""

    wbits: int


def method(raw: Mapping[str, Any]) -> Method:
    """Raises ConfigError: a field has a value that is not known."""
    fields = settings(raw, Fields)
    require("wbits", fields.wbits, BITS)
    return Method(ENDS, functools.partial(matrix, fields.wbits))


def matrix(bits: int, parts: Parts) -> Plain:
    """The matrix of a module. Raises WeightsError: a part is missing, or of another shape."""
    words, num_outputs = parts.expect(QWEIGHT, ("I32",), (None, None))
    num_inputs, rest = divmod(words * 32, bits)
    if rest:
        raise parts.error(QWEIGHT, f"whole codes of {bits} bits in a column", (words, num_outputs))
    parts.expect(TABLE, FLOATS, (num_outputs, 2**bits))
    if parts.has(DENSE):
        raise parts.error(DENSE, "no dense rows, which are not supported", parts.shape(DENSE))
    if any(map(parts.has, (ROWS, COLS, VALS))):
        parts.expect(ROWS, ("I32",), (num_outputs + 1,))
        if parts.shape(COLS) != (0,):
            parts.expect(COLS, ("I32",), (None,))
        parts.expect(VALS, FLOATS, parts.shape(COLS))
    shape = num_outputs, num_inputs
    return Plain(shape, functools.partial(_numbers, parts, bits, shape))


def _numbers(parts: Parts, bits: int, shape: tuple[int, int]) -> np.ndarray:
    codes = np.empty(shape, np.uint8)
    unpack_stream(parts.raw(QWEIGHT).T, bits, codes)
    found = np.empty(shape, np.float32)
    for row, table, each in zip(found, parts.floats(TABLE), codes, strict=True):
        row[...] = table[each]
    if parts.has(ROWS):
        output, cols = _places(parts, shape)
        with np.errstate(all="ignore"):
            found[output, cols] += parts.floats(VALS)
    return found


def _places(parts: Parts, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The output and the input of each outlier."""
    starts, cols = parts.raw(ROWS), parts.raw(COLS)
    counts = starts[1:].astype(np.int64) - starts[:-1]
    if starts[0] != 0 or starts[-1] != len(cols) or (counts < 0).any():
        expected = f"numbers in order from 0 to {len(cols)}"
        raise parts.error(ROWS, expected, f"{starts.min()} to {starts.max()}")
    if len(cols) and (cols.min() < 0 or cols.max() >= shape[1]):
        wrong = cols.min() if cols.min() < 0 else cols.max()
        raise parts.error(COLS, f"inputs from 0 to {shape[1] - 1}", wrong)
    return np.repeat(np.arange(shape[0]), counts), cols
