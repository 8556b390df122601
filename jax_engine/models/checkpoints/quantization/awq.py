"""AWQ: codes of 4 bits with zero points, eight outputs of an input in a word.

    qweight  int32[K, N / 8]
    qzeros   int32[G, N / 8]
    scales   float[G, N]

Nibble i of word c, from the lowest, is output 8 c + OUTPUT_OF[i]. This is AutoAWQ's version "gemm".
"""

import functools
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from jax_engine.models.checkpoints.quantization.matrices import UNSIGNED, Grouped
from jax_engine.models.checkpoints.quantization.method import (
    FLOATS,
    Method,
    Parts,
    require,
    require_group,
    settings,
)

ENDS = (".qweight", ".qzeros", ".scales")
BITS, IN_WORD = 4, 8
OUTPUT_OF = (0, 2, 4, 6, 1, 3, 5, 7)


class Fields(msgspec.Struct, frozen=True):
    """quantization_config; which modules are left out shows in the tensors."""

    bits: int | None = None
    w_bit: int | None = None
    group_size: int | None = None
    q_group_size: int | None = None
    zero_point: bool | None = True
    version: str | None = "gemm"
    modules_to_not_convert: list[str] | None = None


def method(raw: Mapping[str, Any]) -> Method:
    """Raises ConfigError: a field has a value that is not known."""
    fields = settings(raw, Fields)
    require("bits", fields.bits or fields.w_bit, (BITS,))
    require("version", (fields.version or "gemm").lower(), ("gemm",))
    require("zero_point", fields.zero_point, (True,))
    group_size = fields.group_size or fields.q_group_size or 0
    require_group("group_size", group_size)
    return Method(ENDS, functools.partial(matrix, group_size))


def matrix(group_size: int, parts: Parts) -> Grouped:
    """The matrix of a module. Raises WeightsError: a part is missing, or of another shape."""
    num_inputs, words = parts.expect(".qweight", ("I32",), (None, None))
    group = num_inputs if group_size == -1 else min(group_size, num_inputs)
    if num_inputs % group:
        raise parts.error(".qweight", f"a multiple of group_size {group} inputs", num_inputs)
    groups, num_outputs = num_inputs // group, words * IN_WORD
    parts.expect(".qzeros", ("I32",), (groups, words))
    parts.expect(".scales", FLOATS, (groups, num_outputs))
    return Grouped(
        shape=(num_outputs, num_inputs),
        code=UNSIGNED,
        group=group,
        codes_into=functools.partial(_unpack, parts, ".qweight"),
        scales=lambda: parts.floats(".scales").T,
        zeros=functools.partial(_zeros, parts, (num_outputs, groups)),
    )


def _unpack(parts: Parts, end: str, out: np.ndarray) -> None:
    """Writes the codes [outputs, rows of words]."""
    words = np.ascontiguousarray(parts.raw(end).T).view(np.uint32)
    for place, output in enumerate(OUTPUT_OF):
        out[output::IN_WORD] = (words >> np.uint32(BITS * place)) & np.uint32(2**BITS - 1)


def _zeros(parts: Parts, shape: tuple[int, int]) -> np.ndarray:
    zeros = np.empty(shape, np.uint8)
    _unpack(parts, ".qzeros", zeros)
    return zeros.astype(np.float32)
