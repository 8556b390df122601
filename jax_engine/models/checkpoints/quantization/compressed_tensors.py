"""compressed-tensors: groups of modules, each with its own format; LLM Compressor writes it.

A group's `targets` are names of modules, patterns of them after "re:", or the class "Linear", which
is any other module. Which modules are left out (`ignore`) shows in the tensors.

Codes of integers are packed or not. pack-quantized:

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
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.checkpoints.quantization import fp4, fp8
from jax_engine.models.checkpoints.quantization.matrices import (
    UNSIGNED,
    Grouped,
    centred,
    stream_words,
    unpack_stream,
    unpack_words,
)
from jax_engine.models.checkpoints.quantization.method import (
    FIELD,
    FLOATS,
    Matrix,
    Method,
    Parts,
    pattern,
    require,
    require_group,
    settings,
    unsupported,
)
from jax_engine.weights.codes import E4M3, INT8

PACKED, SCALE, ZERO = ".weight_packed", ".weight_scale", ".weight_zero_point"
ORDER, SHAPE, WEIGHT = ".weight_g_idx", ".weight_shape", ".weight"
SCALARS: tuple[tuple[int | None, ...], ...] = ((), (1,), (1, 1))
FIRST_STREAM, LAST_WORDS = (0, 20), (0, 9)


class Integers(NamedTuple):
    """How the matrices of a group of modules are quantised.

    Attributes:
        group_size: inputs that share a scale; 0: those of an output do; None: all of the matrix.
        version: version of compressed-tensors; "": unknown.
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


ENDS = (
    *(".weight", ".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx"),
    *(".weight_shape", ".weight_global_scale"),
)
LINEAR, PATTERN = "Linear", "re:"


class Args(msgspec.Struct, frozen=True):
    """How weights or activations are quantised."""

    num_bits: int = 8
    type: str = "int"
    symmetric: bool = True
    strategy: str | None = None
    group_size: int | None = None
    block_structure: list[int] | None = None
    dynamic: bool | str = False


class Group(msgspec.Struct, frozen=True):
    """One of `config_groups`."""

    targets: list[str]
    weights: Args | None = None
    input_activations: Args | None = None
    format: str | None = None


class Sparsity(msgspec.Struct, frozen=True):
    """`sparsity_config`: which numbers are zero and not stored."""

    format: str | None = None


class Transforms(msgspec.Struct, frozen=True):
    """`transform_config`: rotations of activations."""

    config_groups: dict[str, Any] | None = None


class Fields(msgspec.Struct, frozen=True):
    """quantization_config; the scheme of the KV cache is not read here."""

    config_groups: dict[str, dict[str, Any]]
    format: str | None = None
    ignore: list[str] | None = None
    version: str | None = None
    sparsity_config: Sparsity | None = None
    transform_config: Transforms | None = None


Make = Callable[[Parts], Matrix]


class Target(NamedTuple):
    """Modules of a name, or of a pattern, and how they are read."""

    name: str | re.Pattern[str]
    make: Make

    def matches(self, module: str) -> bool:
        if isinstance(self.name, str):
            return self.name == module
        return self.name.match(module) is not None


def method(raw: Mapping[str, Any]) -> Method:
    """Raises ConfigError: a field has a value that is not known, or something is lacking."""
    fields = settings(raw, Fields)
    sparse = fields.sparsity_config.format if fields.sparsity_config else None
    require("sparsity_config.format", sparse, (None, "dense"))
    transforms = fields.transform_config and fields.transform_config.config_groups
    require("transform_config.config_groups", transforms or None, (None,))
    for one in fields.ignore or ():
        if one.startswith(PATTERN):
            pattern("ignore", one.removeprefix(PATTERN))
    named, linear = [], None
    for key, each in fields.config_groups.items():
        where = f"config_groups.{key}"
        group = settings(each, Group, f".{where}")
        make = _make(where, group, fields)
        for target in group.targets:
            if target == LINEAR:
                linear = make
            elif target.startswith(PATTERN):
                found = pattern(f"{where}.targets", target.removeprefix(PATTERN))
                named.append(Target(found, make))
            else:
                named.append(Target(target, make))
    return Method(ENDS, functools.partial(_matrix, named, linear))


def _matrix(named: list[Target], linear: Make | None, parts: Parts) -> Matrix:
    matching = (target.make for target in named if target.matches(parts.module))
    make = next(matching, linear)
    if make is None:
        raise WeightsError(
            f"{parts.describe()} is a part of a quantised matrix, but no target in "
            "quantization_config.config_groups is this module. Do weights and configuration "
            "belong together?"
        )
    return make(parts)


def _make(where: str, group: Group, fields: Fields) -> Make:
    """How matrices of a group are read."""
    found = group.format or fields.format
    where_format = f"{where}.format" if group.format else "format"
    require(where_format, found, FORMATS)
    if group.weights is None:
        raise ConfigError(f"{FIELD}.{where}.weights is missing.")
    return FORMATS[str(found)](where, group.weights, group, fields)


def _integers(where: str, args: Args, group: Group, fields: Fields) -> Integers:
    require(f"{where}.weights.num_bits", args.num_bits, range(2, 9))
    return Integers(
        bits=args.num_bits,
        symmetric=args.symmetric,
        group_size=_group_size(where, args),
        version=fields.version or "",
        activations=_activations(group.input_activations),
    )


def _packed(where: str, args: Args, group: Group, fields: Fields) -> Make:
    require(f"{where}.weights.type", args.type, ("int",))
    scheme = _integers(where, args, group, fields)
    if scheme.group_size is None and not args.symmetric:
        raise unsupported(f"{where}.weights.strategy", args.strategy, "'channel', 'group'")
    return functools.partial(packed, scheme)


def _unpacked(where: str, args: Args, group: Group, fields: Fields) -> Make:
    require(f"{where}.weights.type", args.type, ("int",))
    return functools.partial(unpacked, _integers(where, args, group, fields))


def _floats(where: str, args: Args, group: Group, fields: Fields) -> Make:
    del fields
    place = f"{where}.weights"
    require(f"{place}.type", args.type, ("float",))
    require(f"{place}.num_bits", args.num_bits, (8,))
    require(f"{place}.symmetric", args.symmetric, (True,))
    require(f"{place}.strategy", args.strategy, (None, "tensor", "channel", "block"))
    block = None
    if args.strategy == "block":
        sizes = args.block_structure or []
        if len(sizes) != 2 or min(sizes) < 1:
            known = "two sizes from 1 on"
            raise unsupported(f"{place}.block_structure", args.block_structure, known)
        block = sizes[0], sizes[1]
    scheme = fp8.Scheme(block, _activations(group.input_activations))
    return functools.partial(fp8.matrix, scheme)


def _naive(where: str, args: Args, group: Group, fields: Fields) -> Make:
    return (_floats if args.type == "float" else _unpacked)(where, args, group, fields)


def _nvfp4(where: str, args: Args, group: Group, fields: Fields) -> Make:
    del group, fields
    _check_fp4(where, args, fp4.NV_GROUP)
    whole = ".weight_global_scale"
    return functools.partial(fp4.nvfp4, end=".weight_packed", whole=whole, divisor=True)


def _mxfp4(where: str, args: Args, group: Group, fields: Fields) -> Make:
    del group, fields
    _check_fp4(where, args, fp4.MX_GROUP)
    return functools.partial(fp4.mxfp4, end=".weight_packed")


def _check_fp4(where: str, args: Args, group_size: int) -> None:
    place = f"{where}.weights"
    require(f"{place}.type", args.type, ("float",))
    require(f"{place}.num_bits", args.num_bits, (4,))
    require(f"{place}.symmetric", args.symmetric, (True,))
    require(f"{place}.group_size", args.group_size, (None, group_size))


def _group_size(where: str, args: Args) -> int | None:
    """As in `Integers`."""
    size = args.group_size
    if args.strategy is None:
        strategy = "tensor" if size is None else "channel" if size == -1 else "group"
    else:
        strategy = args.strategy
    require(f"{where}.weights.strategy", strategy, ("tensor", "channel", "group"))
    if strategy != "group":
        return None if strategy == "tensor" else 0
    require_group(f"{where}.weights.group_size", size or 0)
    return 0 if size == -1 else size


def _activations(args: Args | None) -> str | None:
    """The dtype to which rows of x are rounded with scales that are found as they come.

    With scales from the file (`dynamic` false), other bits, or zero points, they are not rounded.
    """
    if args is None or args.dynamic is not True or args.num_bits != 8 or not args.symmetric:
        return None
    return {"int": INT8, "float": E4M3}.get(args.type)


Builder = Callable[[str, Args, Group, Fields], Make]
FORMATS: dict[str, Builder] = {
    "pack-quantized": _packed,
    "int-quantized": _unpacked,
    "float-quantized": _floats,
    "naive-quantized": _naive,
    "nvfp4-pack-quantized": _nvfp4,
    "mxfp4-pack-quantized": _mxfp4,
}
