"""GPTQ: codes of 2, 3, 4 or 8 bits, in a stream along the inputs.

    qweight  int32[K b / 32, N]
    qzeros   int32[G, N b / 32]   zero points: less one in version 1 ("gptq"), as they are in 2
    scales   float[G, N]
    g_idx    int32[K]             the group of each input; in act-order they are not in order

Symmetric checkpoints have their zero points in the middle of the codes, 2^(b-1). Their `qzeros` are
not read: some say version 1 and have those of version 2.

Codes of up to 4 bits are of the table 0 to 15 and have minimums, or, without minimums, of the table
less the middle. Those of 8 bits are signed, less 128.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.file_schema import short
from jax_engine.models.checkpoints.quantization.matrices import (
    UNSIGNED,
    Grouped,
    centred,
    stream_words,
    unpack_stream,
)
from jax_engine.models.checkpoints.quantization.method import (
    FLOATS,
    Method,
    Parts,
    pattern,
    require,
    require_group,
    settings,
)
from jax_engine.weights.codes import INT8

ENDS = (".qweight", ".qzeros", ".scales", ".g_idx")
BITS = (2, 3, 4, 8)
VERSIONS = {"gptq": 1, "gptq_v2": 2}
# GPT-2's matrices are [in, out] where they are not quantised.
TURNED = {"gpt2": re.compile(r".*\.(c_attn|c_proj|c_fc)")}


class Override(msgspec.Struct, frozen=True):
    """What `dynamic` says of modules whose names match; null: as of the others."""

    bits: int | None = None
    group_size: int | None = None
    sym: bool | None = None


class Fields(msgspec.Struct, frozen=True):
    """quantization_config. Act-order is read from g_idx; tensors tell whether a head is quantised.

    `dynamic` has patterns of names: "-:" leaves modules out, "+:" or nothing has other settings.
    """

    bits: int
    group_size: int = -1
    sym: bool | None = True
    desc_act: bool | None = False
    lm_head: bool | None = False
    checkpoint_format: str | None = None
    format: str | None = None  # its newer name
    dynamic: dict[str, dict[str, Any]] | None = None


class Scheme(NamedTuple):
    """How one module is quantised; a group_size of -1 is all inputs."""

    bits: int
    group_size: int
    sym: bool
    version: int


class Rule(NamedTuple):
    """Modules whose names begin with a pattern have a scheme, or with None are left out."""

    pattern: re.Pattern[str]
    scheme: Scheme | None


def method(raw: Mapping[str, Any], model_type: object) -> Method:
    """
    Args:
        raw: `quantization_config`.
        model_type: what config.json calls so.

    Raises:
        ConfigError: A field has a value that is not known.
    """
    fields = settings(raw, Fields)
    version = fields.checkpoint_format or fields.format or "gptq"
    require("checkpoint_format", version, VERSIONS)
    base = Scheme(fields.bits, fields.group_size, bool(fields.sym), VERSIONS[version])
    _check("", base)
    rules = tuple(_rules(fields.dynamic or {}, base))
    turned = TURNED.get(str(model_type))
    return Method(
        ENDS,
        functools.partial(_module, base, rules),
        turned=lambda module: turned is not None and turned.fullmatch(module) is not None,
    )


def _rules(dynamic: Mapping[str, Mapping[str, Any]], base: Scheme) -> Iterator[Rule]:
    for text, override in dynamic.items():
        found = pattern("dynamic", text.removeprefix("-:").removeprefix("+:"))
        if text.startswith("-:"):
            yield Rule(found, None)
            continue
        where = f"dynamic[{short(text)}]"
        given = msgspec.structs.asdict(settings(override, Override, f".{where}"))
        scheme = base._replace(**{key: x for key, x in given.items() if x is not None})
        _check(f"{where}.", scheme)
        yield Rule(found, scheme)


def _check(where: str, scheme: Scheme) -> None:
    require(f"{where}bits", scheme.bits, BITS)
    require_group(f"{where}group_size", scheme.group_size)


def _module(base: Scheme, rules: tuple[Rule, ...], parts: Parts) -> Grouped:
    """The matrix of a module, by the first rule that its name matches."""
    matching = (rule.scheme for rule in rules if rule.pattern.match(parts.module))
    scheme = next(matching, base)
    if scheme is None:
        raise WeightsError(
            f"{parts.describe()} is a part of a quantised matrix, but quantization_config.dynamic "
            "leaves this module out. Do weights and configuration belong together?"
        )
    return matrix(scheme, parts)


def matrix(scheme: Scheme, parts: Parts) -> Grouped:
    """The matrix of a module. Raises WeightsError: a part is missing, or of another shape."""
    bits = scheme.bits
    words, num_outputs = parts.expect(".qweight", ("I32",), (None, None))
    num_inputs, rest = divmod(words * 32, bits)
    if rest:
        raise parts.error(
            ".qweight", f"whole codes of {bits} bits in a column", (words, num_outputs)
        )
    group = num_inputs if scheme.group_size == -1 else min(scheme.group_size, num_inputs)
    groups = -(-num_inputs // group)
    parts.expect(".scales", FLOATS, (groups, num_outputs))
    if not scheme.sym:
        parts.expect(".qzeros", ("I32",), (groups, stream_words(num_outputs, bits)))
    column_groups = None
    if parts.has(".g_idx"):
        parts.expect(".g_idx", ("I32",), (num_inputs,))
        column_groups = functools.partial(_column_groups, parts, groups)
    middle = 2 ** (bits - 1)
    return Grouped(
        shape=(num_outputs, num_inputs),
        code=INT8 if bits == 8 else centred(bits) if scheme.sym else UNSIGNED,
        group=group,
        codes_into=functools.partial(_codes_into, parts, bits),
        scales=lambda: parts.floats(".scales").T,
        zeros=None if scheme.sym else functools.partial(_zeros, parts, scheme, middle),
        column_groups=column_groups,
        halves=(lambda: True) if parts.dtype(".scales") == "F16" else None,
    )


def _codes_into(parts: Parts, bits: int, out: np.ndarray) -> None:
    unpack_stream(parts.raw(".qweight").T, bits, out)
    if bits == 8:
        out ^= np.uint8(128)  # less 128, in two's complement


def _zeros(parts: Parts, scheme: Scheme, middle: int) -> np.ndarray:
    stored = parts.raw(".qzeros")
    zeros = np.empty((len(stored), parts.shape(".scales")[1]), np.uint8)
    unpack_stream(stored, scheme.bits, zeros)
    found = zeros.astype(np.float32) + (2 - scheme.version)
    most = 2**scheme.bits - 1
    if found.max() > most:  # packages disagree whether this is 0
        raise parts.error(".qzeros", f"zero points from 0 to {most}", most + 1)
    return found.T - (middle if scheme.bits == 8 else 0)


def _column_groups(parts: Parts, groups: int) -> np.ndarray:
    found = parts.raw(".g_idx")
    if found.min() < 0 or found.max() >= groups:
        wrong = found.min() if found.min() < 0 else found.max()
        raise parts.error(".g_idx", f"groups from 0 to {groups - 1}", wrong)
    return found
