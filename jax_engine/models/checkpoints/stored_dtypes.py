"""The dtypes of tensors in files, by the names that safetensors has for them."""

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from jax_engine.errors import WeightsError

if TYPE_CHECKING:
    from jax_engine.models.checkpoints.quantization.method import RawSource

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
FLOATS = ("F64", "F32", "F16", "BF16")


def read_floats(source: "RawSource", name: str, out: np.ndarray) -> None:
    """Writes a tensor of plain numbers into `out`. Raises WeightsError for another dtype."""
    stored = source.dtype(name)
    if stored not in FLOATS:
        raise WeightsError(
            f"{source.describe(name)}: dtype {stored} is not supported; known: {', '.join(FLOATS)}."
        )
    with np.errstate(over="ignore"):  # what becomes infinite is refused by who asked for it
        out[...] = source.raw(name)
