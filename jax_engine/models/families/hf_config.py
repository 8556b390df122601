"""Reading Hugging Face `config.json` dictionaries: fields that all Llama-like families share."""

from collections.abc import Mapping
from typing import Any, cast

from jax_engine.errors import ConfigError
from jax_engine.models.config import RopeConfig, RopeType

_ROPE_NAMES = {"default": "none", None: "none"}
_ROPE_FLOATS = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
)


def required(raw: Mapping[str, Any], name: str) -> int:
    """A size that has no sensible default. Raises ConfigError when it is absent."""
    value = raw.get(name)
    if not isinstance(value, int):
        raise ConfigError(f"config.json: {name} must be an integer, got {value!r}.")
    return value


def token_ids(value: int | list[int] | None) -> tuple[int, ...]:
    """`eos_token_id` as it is written: nothing, one id, or a list of ids."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def rope_from_hf(raw: Mapping[str, Any]) -> RopeConfig:
    """Both spellings: `rope_parameters` (transformers 5) and `rope_theta` with `rope_scaling`."""
    scaling = dict(raw.get("rope_scaling") or {}) | dict(raw.get("rope_parameters") or {})
    written = scaling.get("rope_type", scaling.get("type"))
    kind = cast(RopeType, _ROPE_NAMES.get(written, written))
    max_positions = required(raw, "max_position_embeddings")
    original = scaling.get(
        "original_max_position_embeddings", raw.get("original_max_position_embeddings")
    )
    if original is None and kind in ("llama3", "yarn"):
        original = max_positions
    options: dict[str, Any] = {
        k: float(scaling[k]) for k in _ROPE_FLOATS if scaling.get(k) is not None
    }
    if kind == "yarn" and "factor" not in options:
        options["factor"] = max_positions / (original or max_positions)
    elif kind != "none" and "factor" not in options:
        raise ConfigError(f"config.json: rope type {kind!r} needs a factor in rope_scaling.")
    return RopeConfig(
        theta=float(scaling.get("rope_theta", raw.get("rope_theta", 10000.0))),
        type=kind,
        original_max_position_embeddings=original,
        truncate=bool(scaling.get("truncate", True)),
        **options,
    )
