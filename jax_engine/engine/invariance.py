"""`batch_invariant`: whether a model's kernels must be told of it, and whether they have it."""

import os
from typing import Any

import jax.numpy as jnp

from jax_engine.checks import shown
from jax_engine.config import EngineConfig
from jax_engine.errors import ConfigError
from jax_engine.models.config import ModelConfig
from jax_engine.operations import lacks_invariance, this_device

VARIABLE = "VLLM_BATCH_INVARIANT"
INSTEAD = "leave batch_invariant out, or run on a CPU, where it is always so"


def tells_kernels(config: EngineConfig) -> bool:
    """Whether this device's kernels must be told. Those of a CPU never need to be.

    Raises:
        ConfigError: The device has no such kernels, or the variable is neither 0 nor 1.
    """
    if not _asked(config) or this_device().invariance == "always":
        return False
    if (lack := lacks_invariance()) is not None:
        raise ConfigError(f"batch_invariant cannot be True here: {lack}; {INSTEAD}")
    return True


def in_order_of_devices(config: EngineConfig) -> bool:
    """Whether one device adds up as several do that share a model: where a CPU is asked for it."""
    return _asked(config) and this_device().invariance == "always"


def _asked(config: EngineConfig) -> bool:
    if config.batch_invariant is not None:
        return config.batch_invariant
    said = os.environ.get(VARIABLE, "").strip() or "0"
    if said not in ("0", "1"):
        raise ConfigError(f"the variable {VARIABLE} must be 0 or 1, got {shown(said)}")
    return said == "1"


def check_invariant(model: ModelConfig, dtype: Any, cache_dtype: Any) -> None:
    """Checks that a GPU has kernels with one order for all that a model adds up.

    Raises:
        ConfigError: It has not. Quantised weights are refused where they are opened.
    """
    spec = model.spec
    lacking = None
    if spec.experts:
        lacking = "a mixture of experts"
    elif any(one.latent is not None for one in spec.attentions):
        lacking = "latent attention"
    elif any(isinstance(one.window, tuple) for one in spec.attentions):
        lacking = "windows that differ between layers of one pattern"
    elif jnp.dtype(dtype).itemsize == 4 and jnp.dtype(cache_dtype).itemsize < 4:
        lacking = f"dtype {jnp.dtype(dtype).name} with a cache of {jnp.dtype(cache_dtype).name}"
    if lacking is not None:
        raise ConfigError(f"batch_invariant cannot be True for {lacking} on a GPU: {INSTEAD}")
