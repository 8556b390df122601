"""compressed-tensors: groups of modules, each with its own format; LLM Compressor writes it.

A group's `targets` are names of modules, patterns of them after "re:", or the class "Linear", which
is any other module. Which modules are left out (`ignore`) shows in the tensors.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from jax_engine.errors import ConfigError, WeightsError
from jax_engine.models.quantization import fp4, fp8, integers
from jax_engine.models.quantization.integers import Integers
from jax_engine.models.quantization.modules import Matrix, Method
from jax_engine.models.quantization.parts import Parts
from jax_engine.models.quantization.settings import (
    FIELD,
    pattern,
    require,
    require_group,
    settings,
    unsupported,
)
from jax_engine.weights.codes import E4M3, INT8

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
    return functools.partial(integers.packed, scheme)


def _unpacked(where: str, args: Args, group: Group, fields: Fields) -> Make:
    require(f"{where}.weights.type", args.type, ("int",))
    return functools.partial(integers.unpacked, _integers(where, args, group, fields))


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
