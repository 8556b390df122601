"""FP8: a matrix in E4M3, with scales for the whole, for each output, or for blocks.

    weight            E4M3[N, K]
    weight_scale      one number, float[N] or float[N, 1]
    weight_scale_inv  float[ceil(N / 128), ceil(K / 128)], for `weight_block_size` [128, 128]

Both kinds of scales are multiplied by, and may have either name. Scales in one byte are E8M0:
powers of two. Rows of codes have scales for each output, whatever shares them in the file.
"""

import functools
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import ml_dtypes
import msgspec
import numpy as np
from msgspec import Meta

from jax_engine.models.checkpoints.file_schema import Size
from jax_engine.models.checkpoints.quantization.matrices import Grouped
from jax_engine.models.checkpoints.quantization.method import (
    FLOATS,
    Method,
    Parts,
    require,
    settings,
)
from jax_engine.weights.codes import E4M3

WEIGHT, SCALE, SCALE_INV = ".weight", ".weight_scale", ".weight_scale_inv"
ENDS = (WEIGHT, SCALE, SCALE_INV)
Block = Annotated[list[Size], Meta(min_length=2, max_length=2)]


class Fields(msgspec.Struct, frozen=True):
    """quantization_config; which modules are left out shows in the tensors."""

    activation_scheme: str | None = "dynamic"
    weight_block_size: Block | None = None
    fmt: str | None = None
    scale_fmt: str | None = None
    ignored_layers: list[str] | None = None
    modules_to_not_convert: list[str] | None = None


class Scheme(NamedTuple):
    """Rows and columns that share a scale, if they are blocks; and activations as in `Kind`."""

    block: tuple[int, int] | None = None
    activations: str | None = None


def method(raw: Mapping[str, Any]) -> Method:
    """Raises ConfigError: a field has a value that is not known."""
    fields = settings(raw, Fields)
    scheme = fields.activation_scheme or "dynamic"
    require("activation_scheme", scheme, ("dynamic", "static"))
    require("fmt", fields.fmt, (None, "e4m3"))
    require("scale_fmt", fields.scale_fmt, (None, "ue8m0"))
    block = fields.weight_block_size
    sizes = None if block is None else (block[0], block[1])
    activations = E4M3 if scheme == "dynamic" else None
    return Method(ENDS, functools.partial(matrix, Scheme(sizes, activations)))


def matrix(scheme: Scheme, parts: Parts) -> Grouped:
    """The matrix of a module. Raises WeightsError: a part is missing, or of another shape."""
    num_outputs, num_inputs = shape = _shape(parts)
    end = SCALE_INV if parts.has(SCALE_INV) else SCALE
    dtypes = (*FLOATS, "F8_E8M0", "U8")
    if scheme.block is None:
        parts.expect(end, dtypes, (), (1,), (1, 1), (num_outputs,), (num_outputs, 1))
        rows, group = num_outputs, num_inputs
    else:
        rows, group = (min(a, b) for a, b in zip(scheme.block, shape, strict=True))
        parts.expect(end, dtypes, (-(-num_outputs // rows), -(-num_inputs // group)))
    return Grouped(
        shape=shape,
        code=E4M3,
        group=group,
        codes_into=functools.partial(_codes_into, parts),
        scales=functools.partial(_scales, parts, end, num_outputs, rows, scheme.block is None),
        activations=scheme.activations,
    )


def _shape(parts: Parts) -> tuple[int, int]:
    num_outputs, num_inputs = parts.expect(WEIGHT, ("F8_E4M3",), (None, None))
    return num_outputs, num_inputs


def _codes_into(parts: Parts, out: np.ndarray) -> None:
    out[...] = parts.raw(WEIGHT).view(np.uint8)


def _scales(parts: Parts, end: str, num_outputs: int, rows: int, is_column: bool) -> np.ndarray:
    """One for each output and group."""
    found = in_float32(parts.raw(end))
    if is_column:
        return np.broadcast_to(found.reshape(-1, 1), (num_outputs, 1))
    return np.repeat(found, rows, axis=0)[:num_outputs]


def in_float32(scales: np.ndarray) -> np.ndarray:
    """Scales as numbers; those of one byte are E8M0."""
    raw = scales.view(ml_dtypes.float8_e8m0fnu) if scales.dtype == np.uint8 else scales
    return raw.astype(np.float32)
