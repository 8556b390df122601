"""Reads Hugging Face `config.json` dictionaries: the part that Llama-like families share."""

from typing import Any, cast

import msgspec

from jax_engine.errors import ConfigError
from jax_engine.model_spec import RopeConfig, RopeType
from jax_engine.models.schemas import LlamaFields, RopeFields

FILE = "config.json"
_ROPE_NAMES = {"default": "none", None: "none"}
_NO_OPTION = ("rope_type", "type", "rope_theta", "original_max_position_embeddings")


def token_ids(value: int | list[int] | None) -> tuple[int, ...]:
    """The ids in `eos_token_id`, which is null, one id, or a list."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def rope_from_hf(fields: LlamaFields) -> RopeConfig:
    """Reads `rope_parameters` (transformers 5), or `rope_theta` with `rope_scaling`."""
    scaling = _given(fields.rope_scaling) | _given(fields.rope_parameters)
    written = scaling.get("rope_type", scaling.get("type"))
    kind = cast(RopeType, _ROPE_NAMES.get(written, written))
    original = scaling.get(
        "original_max_position_embeddings", fields.original_max_position_embeddings
    )
    if original is None and kind in ("llama3", "yarn"):
        original = fields.max_position_embeddings
    options = {name: value for name, value in scaling.items() if name not in _NO_OPTION}
    if kind == "yarn" and "factor" not in options:
        options["factor"] = fields.max_position_embeddings / (
            original or fields.max_position_embeddings
        )
    elif kind != "none" and "factor" not in options:
        raise ConfigError(f"{FILE}: rope type {kind!r} needs a factor in rope_scaling.")
    return RopeConfig(
        theta=scaling.get("rope_theta", fields.rope_theta),
        type=kind,
        original_max_position_embeddings=original,
        **options,
    )


def _given(fields: RopeFields | None) -> dict[str, Any]:
    """The fields that are present and not null."""
    every = {} if fields is None else msgspec.structs.asdict(fields)
    return {name: value for name, value in every.items() if value is not None}
