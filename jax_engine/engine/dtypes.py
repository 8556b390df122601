"""The dtypes of an engine's numbers, which settings name: of weights, activations and KV cache."""

from typing import Any

import jax.numpy as jnp

from jax_engine.config import EngineConfig
from jax_engine.errors import ConfigError
from jax_engine.models.config import ModelConfig
from jax_engine.operations import this_device

_DTYPES = {"float": "float32", "half": "float16"}
_CACHE_DTYPES = {"fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn", "int8": "int8"}


def resolve_dtype(name: str) -> Any:
    """The dtype of weights and activations."""
    if name == "auto":
        name = this_device().auto_dtype
    return jnp.dtype(_DTYPES.get(name, name))


def resolve_cache_dtype(config: EngineConfig) -> Any:
    """The dtype of the KV cache."""
    name = config.kv_cache_dtype
    if name == "auto":
        return resolve_dtype(config.dtype)
    return jnp.dtype(_CACHE_DTYPES[name])


def check_cache_dtype(config: EngineConfig, model: ModelConfig) -> None:
    """
    Raises:
        ConfigError: The model's cache cannot have the dtype that was asked for.
    """
    if config.kv_cache_dtype == "int8" and model.spec.attentions[0].latent is not None:
        raise ConfigError(
            "kv_cache_dtype must be 'auto' or 'fp8' for a model with latent attention, whose "
            "latents and rotated parts would share one scale, got 'int8'"
        )
