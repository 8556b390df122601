"""Writes a safetensors file of any dtype, tensor by tensor.

`safetensors.numpy` copies all tensors before it writes, and knows fewer dtypes.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_engine.models.safetensors_raw import DTYPES

NAMES = {dtype: name for name, dtype in DTYPES.items()}
PARTIAL = ".partial"


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> str:
    """Writes the whole file or none, and returns its SHA-256. Raises OSError."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, array in tensors.items():
        entry = {"dtype": NAMES[array.dtype], "shape": list(array.shape)}
        header[name] = entry | {"data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = path.with_name(path.name + PARTIAL)
    digest = hashlib.sha256()
    with partial.open("wb") as file:
        for head in (len(text).to_bytes(8, "little"), text):
            digest.update(head)
            file.write(head)
        for array in tensors.values():
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
