"""Codes as the tensors of a checkpoint format, and its `quantization_config`.

`models/checkpoints/quantization/` reads them, and says what each layout is.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from jax_engine.models.checkpoints.quantization.awq import IN_WORD, OUTPUT_OF
from jax_engine.quantize.options import Options
from jax_engine.quantize.rounding import Coded, Floats, Grid, Steps

Tensors = dict[str, np.ndarray]
VERSION = "0.12.0"  # of compressed-tensors, whose layout this is
HEAD = "lm_head"
FP16 = "<f2"


@dataclasses.dataclass(frozen=True)
class Layout:
    """A format, for one choice of options.

    Attributes:
        grid: how groups are coded.
        group_size: inputs of a group; -1: all of them.
        parts: the tensors of a matrix, by the ends of their names.
        config: `quantization_config`, of the modules that are left as they are.
        multiples: what outputs and inputs must be multiples of.
    """

    grid: Grid
    group_size: int
    parts: Callable[[Coded], Tensors]
    config: Callable[[Sequence[str]], dict[str, Any]]
    multiples: tuple[int, int] = (1, 1)

    def group(self, num_inputs: int) -> int:
        return num_inputs if self.group_size == -1 else self.group_size


def layout_of(options: Options, group_size: int) -> Layout:
    """The layout of the options' format, with this group size."""
    symmetric = not options.asymmetric
    if options.format == "awq":
        parts, config = _awq, _awq_config(group_size)
        return Layout(Steps(4, symmetric=False), group_size, parts, config, (IN_WORD, 1))
    if options.format == "gptq":
        grid = Steps(4, symmetric, least_zero=1)
        config = _gptq_config(group_size, symmetric, options.act_order)
        return Layout(grid, group_size, _gptq, config, (8, 8))
    if options.format == "fp8":
        weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
        config = _compressed("float-quantized", weights, _rounded_rows("float"))
        return Layout(Floats(), -1, _fp8, config)
    if options.format == "w8a8":
        weights = {"num_bits": 8, "type": "int", "strategy": "channel"}
        config = _compressed("int-quantized", weights, _rounded_rows("int"))
        return Layout(Steps(8, dtype="float32"), -1, _int8, config)
    bits = {"w4a16": 4, "w8a16": 8}[options.format]
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric}
    weights |= {"strategy": "channel"} if group_size == -1 else {}
    weights |= {} if group_size == -1 else {"strategy": "group", "group_size": group_size}
    weights |= {"actorder": "group"} if options.act_order else {}

    def parts_of(coded: Coded) -> Tensors:
        return _packed(coded, bits, symmetric, options.act_order)

    return Layout(
        Steps(bits, symmetric), group_size, parts_of, _compressed("pack-quantized", weights)
    )


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes of 4 or 8 bits [rows, n] in words [rows, ceil(n bits / 32)], from the lowest bit on."""
    in_word = 32 // bits
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % in_word))).astype(np.uint32)
    shifts = (np.arange(in_word) * bits).astype(np.uint32)
    each = padded.reshape(len(codes), -1, in_word) << shifts
    return np.asarray(np.bitwise_or.reduce(each, axis=-1).view("<i4"))


def _packed(coded: Coded, bits: int, symmetric: bool, ordered: bool) -> Tensors:
    found = {
        "weight_packed": pack(coded.codes, bits),
        "weight_scale": coded.scales.astype(FP16),
        "weight_shape": np.array(coded.codes.shape, "<i8"),
    }
    if not symmetric:
        found["weight_zero_point"] = pack(coded.zeros.T, bits).T
    if ordered:
        found["weight_g_idx"] = coded.groups.astype("<i4")
    return found


def _int8(coded: Coded) -> Tensors:
    signed = (coded.codes ^ np.uint8(128)).view(np.int8)  # less 128, in two's complement
    return {"weight": signed, "weight_scale": coded.scales.astype("<f4")}


def _fp8(coded: Coded) -> Tensors:
    return {
        "weight": coded.codes.view(ml_dtypes.float8_e4m3fn),
        "weight_scale": coded.scales.astype("<f4"),
    }


def _gptq(coded: Coded) -> Tensors:
    """Version 1: zero points less one."""
    return {
        "qweight": pack(coded.codes, 4).T,
        "qzeros": pack(coded.zeros.T - 1, 4),
        "scales": coded.scales.astype(FP16).T,
        "g_idx": coded.groups.astype("<i4"),
    }


def _awq(coded: Coded) -> Tensors:
    return {
        "qweight": _pack_awq(coded.codes.T),
        "qzeros": _pack_awq(coded.zeros.T),
        "scales": coded.scales.astype(FP16).T,
    }


def _pack_awq(codes: np.ndarray) -> np.ndarray:
    """Codes [rows, N], eight outputs in a word."""
    ordered = codes.reshape(len(codes), -1, IN_WORD)[..., np.array(OUTPUT_OF)]
    return pack(ordered.reshape(codes.shape), 4)


def _rounded_rows(kind: str) -> dict[str, Any]:
    """Activations that are rounded to 8 bits, each row with a scale of its own as it comes."""
    return {
        "num_bits": 8,
        "type": kind,
        "symmetric": True,
        "strategy": "token",
        "dynamic": True,
    }


def _compressed(
    name: str, weights: dict[str, Any], activations: dict[str, Any] | None = None
) -> Callable[[Sequence[str]], dict[str, Any]]:
    def config(left_out: Sequence[str]) -> dict[str, Any]:
        scheme = {"symmetric": True, "dynamic": False, **weights}
        group = {"targets": ["Linear"], "weights": scheme, "input_activations": activations}
        return {
            "quant_method": "compressed-tensors",
            "format": name,
            "version": VERSION,
            "quantization_status": "compressed",
            "config_groups": {"group_0": group},
            "ignore": [HEAD, *left_out],
        }

    return config


def _gptq_config(
    group_size: int, symmetric: bool, act_order: bool
) -> Callable[[Sequence[str]], dict[str, Any]]:
    def config(left_out: Sequence[str]) -> dict[str, Any]:
        found = {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": group_size,
            "sym": symmetric,
            "desc_act": act_order,
            "lm_head": False,
            "checkpoint_format": "gptq",
        }
        if left_out:
            found["dynamic"] = {f"-:^{re.escape(name)}$": {} for name in left_out}
        return found

    return config


def _awq_config(group_size: int) -> Callable[[Sequence[str]], dict[str, Any]]:
    def config(left_out: Sequence[str]) -> dict[str, Any]:
        return {
            "quant_method": "awq",
            "bits": 4,
            "group_size": group_size,
            "zero_point": True,
            "version": "gemm",
            "modules_to_not_convert": [HEAD, *left_out],
        }

    return config
