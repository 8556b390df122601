"""Reads a model's configuration: config.json of a directory, or the metadata of a GGUF file."""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from jax_engine.errors import ConfigError
from jax_engine.file_schema import checked, read_json
from jax_engine.models.config import ModelConfig
from jax_engine.models.families.hf_config import token_ids
from jax_engine.models.hf_overrides import overridden
from jax_engine.models.pooling_recipe import recipe_of_directory
from jax_engine.models.registry import config_from_hf
from jax_engine.models.schemas import GenerationFields
from jax_engine.modes import HfOverrides

if TYPE_CHECKING:
    from jax_engine.models.gguf_file import GgufFile


def check_max_model_len(config: ModelConfig, max_model_len: int | None) -> None:
    """Raises ConfigError if `max_model_len` is below 1 or exceeds the model's positions."""
    if max_model_len is not None and not 1 <= max_model_len <= config.max_context_len:
        raise ConfigError(
            f"max_model_len must be between 1 and this model's {config.max_context_len} positions "
            f"(RoPE scaling included), got {max_model_len}."
        )


def read_config(
    source: Path, gguf: "GgufFile | None", hf_overrides: HfOverrides | None
) -> ModelConfig:
    """ModelConfig of a directory, or of an open GGUF file. Raises ConfigError or WeightsError."""
    if gguf is None:
        return read_hf_config(source, hf_overrides)
    if hf_overrides:
        raise ConfigError(f"hf_overrides need a config.json, but {source} is a GGUF file.")
    from jax_engine.models.gguf_loader import config_from_gguf

    return config_from_gguf(gguf)


def read_hf_config(directory: Path, hf_overrides: HfOverrides | None = None) -> ModelConfig:
    """ModelConfig of a directory in Hugging Face layout. Raises ConfigError or WeightsError.

    Adds the end-of-sequence ids of generation_config.json, where chat models list several.
    """
    config = config_from_hf(overridden(read_json(directory / "config.json"), hf_overrides))
    config = dataclasses.replace(config, pooling=recipe_of_directory(directory))
    generation = directory / "generation_config.json"
    if not os.path.lexists(generation):  # a link to nothing is a broken file
        return config
    extra = checked(read_json(generation), GenerationFields, generation.name).eos_token_id
    eos = tuple(dict.fromkeys((*config.eos_token_ids, *token_ids(extra))))
    return dataclasses.replace(config, eos_token_ids=eos)
