"""Rotary embeddings of a GGUF file, as `rope_parameters` of config.json describe them."""

import math
from typing import Any

import numpy as np

from jax_engine.errors import WeightsError
from jax_engine.models.gguf.fields import GgufFields
from jax_engine.models.gguf.tensors import decode
from jax_engine.models.gguf_file import GgufFile

FACTORS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"


def shortest(value: float) -> float:
    """The shortest decimal of a float32: 1e-05 rather than 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def rope_of(file: GgufFile, fields: GgufFields) -> dict[str, Any]:
    """The embedding of all layers, or of those that see all. Raises WeightsError."""
    rope: dict[str, Any] = {"rope_theta": shortest(fields.freq_base)}
    if LONG in file.tensors and SHORT in file.tensors:
        return rope | _longrope(file, fields)
    scaling = _scaling(fields)
    if FACTORS in file.tensors:
        # Divisors of the frequencies, which a scaling divides once more. Alone they are the result
        # of llama3's formula, whose factor has no effect.
        rope["frequency_factors"] = _positive(file, FACTORS)
        scaling = scaling or {"rope_type": "llama3", "factor": 1.0}
    return rope | scaling


def _scaling(fields: GgufFields) -> dict[str, Any]:
    """How the context is stretched by the metadata; empty: not at all."""
    linear = "none" if fields.scale_linear is None else "linear"
    kind = linear if fields.scaling_type is None else fields.scaling_type
    factor = fields.scale_linear if fields.scaling_factor is None else fields.scaling_factor
    if kind == "none" or factor == 0:
        return {}
    factor = 1.0 if factor is None else factor
    found = {"rope_type": kind, "factor": shortest(factor)} | _original_context(fields)
    return found | _yarn(fields, factor) if kind == "yarn" else found


def _yarn(fields: GgufFields, factor: float) -> dict[str, Any]:
    """What YaRN has beside a factor."""
    betas = {"beta_fast": fields.scaling_beta_fast, "beta_slow": fields.scaling_beta_slow}
    found = {name: shortest(value) for name, value in betas.items() if value is not None}
    if fields.scaling_attention_factor is not None:
        # llama.cpp multiplies it into YaRN's own factor
        own = 1.0 + 0.1 * float(np.log(factor))
        found["attention_factor"] = shortest(fields.scaling_attention_factor) * own
    return found


def _longrope(file: GgufFile, fields: GgufFields) -> dict[str, Any]:
    """Phi-3's two sets of divisors; without a factor of attention its formula applies."""
    rope: dict[str, Any] = {
        "rope_type": "longrope",
        "short_factor": _positive(file, SHORT),
        "long_factor": _positive(file, LONG),
    }
    if fields.scaling_attention_factor is not None:
        rope["attention_factor"] = fields.scaling_attention_factor
    return rope | _original_context(fields)


def _original_context(fields: GgufFields) -> dict[str, Any]:
    original = fields.scaling_original_context
    return {"original_max_position_embeddings": original} if original else {}


def _positive(file: GgufFile, name: str) -> list[float]:
    """Divisors of the frequencies. Raises WeightsError if one is not positive."""
    values = decode(file, name, 0, math.prod(file.tensors[name].shape))
    wrong = values[~((values > 0) & np.isfinite(values))]
    if wrong.size:
        raise WeightsError(f"{file.path}, tensor {name}: values must be positive, got {wrong[0]}.")
    return [shortest(value) for value in values]
