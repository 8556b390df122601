"""One safetensors file: its tensors by name, as they are stored.

A file is eight bytes with the header's length, the header in JSON, and the numbers. `safe_open`
checks it, but gives NumPy arrays only of dtypes that NumPy knows, while scales and weights may be
floats of 8 bits. So `RawFile` has tensors as they are stored: codes of any dtype, mapped and not
copied.
"""

import json
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.file_schema import describe_broken_file
from jax_engine.models.checkpoints.stored_dtypes import DTYPES


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


class SafetensorsFile:
    """A file that is open. Raises WeightsError: it is cut off, damaged or something else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mapped: RawFile | None = None  # opened when first read
        self._opening = threading.Lock()
        try:
            self._file: Any = safe_open(path, framework="numpy")
        except (SafetensorError, OSError) as error:
            size = path.stat().st_size if path.exists() else 0
            raise WeightsError(
                f"{path} ({size} bytes) is not a whole safetensors file: {error}. "
                f"{describe_broken_file(path) or 'Download it again.'}"
            ) from error

    def keys(self) -> Collection[str]:
        found: list[str] = self._file.keys()
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._file.get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """What the file calls the dtype: "F32", "I8"."""
        return str(self._file.get_slice(name).get_dtype())

    def raw(self, name: str) -> np.ndarray:
        """A view of the mapped file. Thread-safe. Raises WeightsError."""
        with self._opening:
            if self._mapped is None:
                self._mapped = RawFile(self._path)
        return self._mapped.read(name)
