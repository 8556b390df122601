"""Element types by name, and arrays as plain JSON for a kernel in another process."""

import base64
import math
from typing import Any

import numpy as np

from paged_conformance.properties import Lacking

try:  # NumPy has no such numbers of its own
    import ml_dtypes
except ImportError:
    ml_dtypes = None  # type: ignore[assignment]

FLOATS = ("float32", "bfloat16", "float16")
LARGEST = {"int8": 127, "float8_e4m3fn": 448}  # the 8-bit caches, and their largest number
# Half of the distance between neighbouring numbers, relative to them.
UNIT_ROUNDOFF = {"float32": 2**-24, "bfloat16": 2**-8, "float16": 2**-11}

type JsonArray = dict[str, Any]


def dtype_of(name: str) -> np.dtype[Any]:
    """The element type of this name.

    Raises:
        Lacking: bfloat16 or float8_e4m3fn, where the package ml_dtypes is not installed.
    """
    if name not in ("bfloat16", "float8_e4m3fn"):
        return np.dtype(name)
    if ml_dtypes is None:
        raise Lacking(f"{name}, since the package ml_dtypes is not installed")
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def has_dtype(name: str) -> bool:
    """Whether arrays of this element type can be made here."""
    return ml_dtypes is not None or name not in ("bfloat16", "float8_e4m3fn")


def to_json(array: np.ndarray) -> JsonArray:
    """`{"shape": [2, 3], "dtype": "float32", "base64": "..."}`: row after row, little-endian."""
    kept = np.ascontiguousarray(array)
    if kept.dtype.byteorder == ">":
        kept = kept.astype(kept.dtype.newbyteorder("<"))
    data = base64.b64encode(kept.tobytes()).decode("ascii")
    return {"shape": list(array.shape), "dtype": array.dtype.name, "base64": data}


def from_json(array: JsonArray) -> np.ndarray:
    """The array that `to_json` wrote.

    Raises:
        ValueError: The bytes are not as many as the shape and the element type say.
    """
    shape, dtype = array["shape"], dtype_of(array["dtype"])
    data = base64.b64decode(array["base64"])
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{len(data)} bytes are no array of {shape} {array['dtype']}")
    return np.frombuffer(data, dtype).reshape(shape).copy()
