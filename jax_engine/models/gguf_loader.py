"""Configuration of a GGUF file: the config.json that the model would have, read by its family."""

import dataclasses

from jax_engine.models.config import ModelConfig
from jax_engine.models.gguf.architecture import Header
from jax_engine.models.gguf.architectures import architecture_of
from jax_engine.models.gguf_file import GgufFile
from jax_engine.models.pooling_recipe import recipe_of_gguf
from jax_engine.models.registry import config_from_hf


def config_from_gguf(file: GgufFile) -> ModelConfig:
    """ModelConfig from metadata (and RoPE's tensors). Raises ConfigError, WeightsError."""
    architecture = architecture_of(file)
    header = Header(file, architecture.name)
    config = config_from_hf(architecture.config(header))
    return dataclasses.replace(config, pooling=recipe_of_gguf(header.fields.pooling_type))
