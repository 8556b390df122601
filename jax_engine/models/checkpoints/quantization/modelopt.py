"""NVIDIA's ModelOpt: FP8 with scales from the file for activations, and NVFP4.

    FP8     weight E4M3[N, K], weight_scale
    NVFP4   weight uint8[N, K / 2], weight_scale E4M3[N, K / 16], weight_scale_2 float32: a factor

`quantization_config` has `quant_algo` in it, or in `quantization` below it.
"""

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from jax_engine.models.checkpoints.quantization import fp4, fp8
from jax_engine.models.checkpoints.quantization.method import WEIGHT, Method, require, settings
from jax_engine.weights.codes import E4M3

ENDS = (WEIGHT, ".weight_scale", ".weight_scale_2")
FP8 = {"FP8": None, "FP8_PER_CHANNEL_PER_TOKEN": E4M3}  # what activations are rounded to
NVFP4 = ("NVFP4",)


class Inner(msgspec.Struct, frozen=True):
    """The fields themselves."""

    quant_algo: str | None = None
    group_size: int | None = None


class Fields(Inner, frozen=True):
    """quantization_config."""

    quantization: Inner | None = None


def method(raw: Mapping[str, Any]) -> Method:
    """Raises ConfigError: a field has a value that is not known."""
    fields = inner(raw)
    require("quant_algo", fields.quant_algo, (*FP8, *NVFP4))
    if fields.quant_algo in FP8:
        scheme = fp8.Scheme(activations=FP8[fields.quant_algo])
        return Method(ENDS[:2], functools.partial(fp8.matrix, scheme))
    require("group_size", fields.group_size or fp4.NV_GROUP, (fp4.NV_GROUP,))
    make = functools.partial(fp4.nvfp4, end=WEIGHT, whole=".weight_scale_2", divisor=False)
    return Method(ENDS, make)


def inner(raw: Mapping[str, Any]) -> Inner:
    """Where the algorithm is named. Raises ConfigError."""
    fields = settings(raw, Fields)
    return fields if fields.quantization is None else fields.quantization
