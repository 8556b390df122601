"""Integer codes of compressed-tensors, packed or not.

pack-quantized:

    weight_packed      int32[N, words]   codes + 2^(b-1), so that they are not negative
    weight_scale       float[N, G]
    weight_zero_point  int32[words, G]   if it is asymmetric: packed alike, along the outputs
    weight_g_idx       int32[K]          if inputs are grouped in act-order; -1: they are not
    weight_shape       int64[2]          N and K

int-quantized: int8[N, K], float[N, G], and int8[N, G]. One scale for the whole matrix has no axes.

How codes lie in words has changed: version 0.20 has a stream, 0.9 whole words. The number of words
tells which it is, but for matrices of few inputs, whose file must name its version.
"""

import functools
import re
from typing import NamedTuple

import numpy as np

from jax_engine.models.quantization.grouped import UNSIGNED, Grouped, centred
from jax_engine.models.quantization.packing import stream_words, unpack_stream, unpack_words
from jax_engine.models.quantization.parts import FLOATS, Parts
from jax_engine.weights.codes import INT8

PACKED, SCALE, ZERO = ".weight_packed", ".weight_scale", ".weight_zero_point"
ORDER, SHAPE, WEIGHT = ".weight_g_idx", ".weight_shape", ".weight"
SCALARS: tuple[tuple[int | None, ...], ...] = ((), (1,), (1, 1))
FIRST_STREAM, LAST_WORDS = (0, 20), (0, 9)


class Integers(NamedTuple):
    """How the matrices of a group of modules are quantised.

    Attributes:
        group_size: inputs that share a scale; 0: those of an output do; None: all of the matrix.
        version: of compressed-tensors; "": unknown.
        activations: as in `Kind`.
    """

    bits: int
    symmetric: bool
    group_size: int | None
    version: str
    activations: str | None


def packed(scheme: Integers, parts: Parts) -> Grouped:
    """A matrix of pack-quantized. Raises WeightsError."""
    bits = scheme.bits
    num_outputs, num_inputs = shape = _unpacked_shape(parts)
    words = parts.expect(PACKED, ("I32",), (num_outputs, None))[1]
    in_stream = _is_stream(scheme, parts, PACKED, words, num_inputs)
    group, groups = _groups(scheme, parts, num_outputs, num_inputs)
    zeros = None
    if not scheme.symmetric:
        zero_words = parts.expect(ZERO, ("I32",), (None, groups))[0]
        of_zeros = _is_stream(scheme, parts, ZERO, zero_words, num_outputs)
        zeros = functools.partial(_packed_zeros, parts, bits, of_zeros, num_outputs)
    column_groups = None
    if parts.has(ORDER):
        parts.expect(ORDER, ("I32",), (num_inputs,))
        column_groups = functools.partial(_column_groups, parts, group, groups)
    return Grouped(
        shape=shape,
        code=INT8 if bits > 4 else centred(bits) if scheme.symmetric else UNSIGNED,
        group=group,
        codes_into=functools.partial(_unpack, parts, bits, in_stream),
        scales=functools.partial(_shared, parts, SCALE, (num_outputs, groups)),
        zeros=zeros,
        column_groups=column_groups,
        activations=scheme.activations,
    )


def unpacked(scheme: Integers, parts: Parts) -> Grouped:
    """A matrix of int-quantized, whatever its bits are. Raises WeightsError."""
    num_outputs, num_inputs = parts.expect(WEIGHT, ("I8",), (None, None))
    group, groups = _groups(scheme, parts, num_outputs, num_inputs)
    zeros = None
    if not scheme.symmetric:
        shapes = SCALARS if scheme.group_size is None else ((num_outputs, groups),)
        parts.expect(ZERO, ("I8",), *shapes)
        zeros = functools.partial(_shared, parts, ZERO, (num_outputs, groups))
    return Grouped(
        shape=(num_outputs, num_inputs),
        code=INT8,
        group=group,
        codes_into=functools.partial(_copy, parts),
        scales=functools.partial(_shared, parts, SCALE, (num_outputs, groups)),
        zeros=zeros,
        activations=scheme.activations,
    )


def _unpacked_shape(parts: Parts) -> tuple[int, int]:
    parts.expect(SHAPE, ("I64", "I32"), (2,))
    num_outputs, num_inputs = (int(size) for size in parts.raw(SHAPE))
    if num_outputs < 1 or num_inputs < 1:
        raise parts.error(SHAPE, "two sizes from 1 on", (num_outputs, num_inputs))
    return num_outputs, num_inputs


def _is_stream(scheme: Integers, parts: Parts, end: str, words: int, count: int) -> bool:
    """Whether `count` codes are a stream, by their number of words."""
    bits = scheme.bits
    stream, whole = stream_words(count, bits), -(-count // (32 // bits))
    if words not in (stream, whole):
        raise parts.error(end, f"{count} codes of {bits} bits, {stream} or {whole} words", words)
    if stream != whole or 32 % bits == 0 or words == 1:
        return words == stream
    numbers = re.match(r"(\d{1,9})\.(\d{1,9})", scheme.version)
    version = tuple(map(int, numbers.groups())) if numbers else (0, 10)
    if LAST_WORDS < version < FIRST_STREAM:
        expected = f"codes of {bits} bits, packed as version 0.20 does, or 0.9"
        raise parts.error(end, expected, f"version {scheme.version!r}, which may be either")
    return version >= FIRST_STREAM


def _groups(scheme: Integers, parts: Parts, num_outputs: int, num_inputs: int) -> tuple[int, int]:
    """The size of groups, and their number in a row, which that of the scales must be."""
    group = min(scheme.group_size or num_inputs, num_inputs)
    if num_inputs % group:
        end = SHAPE if parts.has(SHAPE) else WEIGHT
        raise parts.error(end, f"a multiple of group_size {group} inputs", num_inputs)
    groups = num_inputs // group
    rows: tuple[tuple[int | None, ...], ...] = ((num_outputs, groups),)
    if scheme.group_size == 0:
        rows = (*rows, (num_outputs,))
    parts.expect(SCALE, FLOATS, *(SCALARS if scheme.group_size is None else rows))
    return group, groups


def _unpack(parts: Parts, bits: int, in_stream: bool, out: np.ndarray) -> None:
    (unpack_stream if in_stream else unpack_words)(parts.raw(PACKED), bits, out)
    if bits > 4:
        out -= np.uint8(2 ** (bits - 1))  # signed, in two's complement


def _packed_zeros(parts: Parts, bits: int, in_stream: bool, num_outputs: int) -> np.ndarray:
    words = np.ascontiguousarray(parts.raw(ZERO).T)
    zeros = np.empty((len(words), num_outputs), np.uint8)
    (unpack_stream if in_stream else unpack_words)(words, bits, zeros)
    return zeros.T.astype(np.float32) - (2 ** (bits - 1) if bits > 4 else 0)


def _shared(parts: Parts, end: str, shape: tuple[int, int]) -> np.ndarray:
    """Scales or zero points, one for each group of each output."""
    found = parts.floats(end)
    return np.broadcast_to(found.reshape(-1, shape[1]), shape)


def _copy(parts: Parts, out: np.ndarray) -> None:
    out[...] = parts.raw(WEIGHT).view(np.uint8)


def _column_groups(parts: Parts, group: int, groups: int) -> np.ndarray:
    found = parts.raw(ORDER)
    if (found == -1).any():
        return np.arange(len(found)) // group
    if found.min() < 0 or found.max() >= groups:
        wrong = found.min() if found.min() < 0 else found.max()
        raise parts.error(ORDER, f"groups from 0 to {groups - 1}", wrong)
    return found
