"""Tensors of a safetensors file as they are stored: codes of any dtype, mapped and not copied.

`safe_open` gives NumPy arrays only of dtypes that NumPy knows; scales and weights may be floats of
8 bits. The file is eight bytes with the header's length, the header in JSON, and the numbers.
"""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from jax_engine.errors import WeightsError

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
