"""Which method a checkpoint is quantised with: its own word, and the user's `quantization=`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from jax_engine.errors import ConfigError
from jax_engine.file_schema import checked, read_json, short
from jax_engine.models.quantization import (
    awq,
    bitsandbytes,
    compressed_tensors,
    fp4,
    fp8,
    gptq,
    modelopt,
    squeezellm,
)
from jax_engine.models.quantization.modules import Method
from jax_engine.models.quantization.parts import RawSource
from jax_engine.models.quantization.settings import FIELD
from jax_engine.models.quantization.source import QuantizedSource

MODELOPT_FILE = "hf_quant_config.json"
# Names under which vLLM, or a checkpoint, knows a method here.
ALIASES = {
    "gptq_marlin": "gptq",
    "gptq_bitblas": "gptq",
    "awq_marlin": "awq",
    "compressed_tensors": "compressed-tensors",
    "sparseml": "compressed-tensors",
    "fbgemm_fp8": "fp8",
    "nvfp4": "modelopt_fp4",
}
METHODS: dict[str, Callable[[Mapping[str, Any], object], Method]] = {
    "gptq": gptq.method,
    "awq": lambda raw, _: awq.method(raw),
    "compressed-tensors": lambda raw, _: compressed_tensors.method(raw),
    "fp8": lambda raw, _: fp8.method(raw),
    "mxfp4": lambda raw, _: fp4.method(raw),
    "modelopt": lambda raw, _: modelopt.method(raw),
    "modelopt_fp4": lambda raw, _: modelopt.method(raw),
    "bitsandbytes": lambda raw, _: bitsandbytes.method(raw),
    "squeezellm": lambda raw, _: squeezellm.method(raw),
}


class Outer(msgspec.Struct, frozen=True):
    """Where config.json says how it is quantised."""

    quantization_config: dict[str, Any] | None = None
    compression_config: dict[str, Any] | None = None
    quantization: Any = None  # MLX's


def open_quantized(
    source: RawSource, config: Mapping[str, Any], wanted: str | None = None
) -> RawSource | QuantizedSource:
    """The source itself if the checkpoint is not quantised, or a `QuantizedSource` of it.

    Args:
        config: config.json.
        wanted: the method that the user names; None: the checkpoint's.

    Raises:
        ConfigError: the method is not known, is not the checkpoint's, or a variant is lacking.
        WeightsError: parts of a quantised matrix are missing, or of another dtype or shape.
    """
    raw = quantization_config(config, source.location)
    asked = None if wanted is None else known_method("quantization", wanted)
    if raw is None:
        if asked is None:
            return source
        raise ConfigError(
            f"quantization={wanted!r}, but the checkpoint {source.location} is not quantised: "
            "config.json has no quantization_config; known: None."
        )
    found = method_of(raw)
    if asked not in (None, found) and (asked, found) != ("modelopt", "modelopt_fp4"):
        raise ConfigError(
            f"quantization={wanted!r}, but {FIELD}.quant_method of {source.location} is "
            f"{raw.get('quant_method')!r}; known: None or {found!r}."
        )
    return QuantizedSource(source, METHODS[found](raw, config.get("model_type")), found)


def quantization_config(config: Mapping[str, Any], directory: Path) -> Mapping[str, Any] | None:
    """What config.json, or ModelOpt's own file, says about weights; None: they are not quantised.

    Raises:
        ConfigError: It is no dictionary, or MLX's.
        WeightsError: The file is unreadable.
    """
    outer = checked(config, Outer, "config.json")
    found = outer.quantization_config
    _refuse_mlx(outer.quantization if found is None else found, directory)
    if not found and outer.compression_config:
        found = {"quant_method": "compressed-tensors", **outer.compression_config}
    file = directory / MODELOPT_FILE
    if not found and file.is_file():
        found = {"quant_method": "modelopt", **read_json(file)}
        if modelopt.inner(found).quant_algo is None:  # only the KV cache is
            return None
    return found or None


def _refuse_mlx(raw: Any, directory: Path) -> None:
    """Raises ConfigError for what MLX writes, which names no method."""
    if isinstance(raw, dict) and "quant_method" not in raw and raw.keys() >= {"bits", "group_size"}:
        raise ConfigError(
            f"{directory} holds codes of MLX (config.json: {short(raw['bits'])} bits in groups of "
            f"{short(raw['group_size'])}), which are not read. Take the model that they were made "
            "from, or a GGUF file of it."
        )


def method_of(raw: Mapping[str, Any]) -> str:
    """The method of a `quantization_config`, one of METHODS. Raises ConfigError."""
    found = known_method(f"{FIELD}.quant_method", raw.get("quant_method"))
    is_fp4 = found == "modelopt" and modelopt.inner(raw).quant_algo in modelopt.NVFP4
    return "modelopt_fp4" if is_fp4 else found


def known_method(field: str, value: object) -> str:
    """One of METHODS, by any of its names. Raises ConfigError."""
    name = ALIASES.get(value, value) if isinstance(value, str) else value
    if not isinstance(name, str) or name not in METHODS:
        raise ConfigError(
            f"{field} {short(value)} is not supported; known: {', '.join((*METHODS, *ALIASES))}."
        )
    return name
