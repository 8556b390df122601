"""Mistral 7B and its kin: Llama with a sliding window. The weight names are Llama's."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jax_engine.file_schema import checked
from jax_engine.models.config import ModelConfig
from jax_engine.models.families import llama
from jax_engine.models.families.hf_config import FILE
from jax_engine.models.schemas import SlidingWindowFields

ARCHITECTURE = "MistralForCausalLM"
IGNORED_SUFFIXES = llama.IGNORED_SUFFIXES
specification = llama.specification
weights = llama.weights


def from_hf(raw: Mapping[str, Any]) -> ModelConfig:
    """ModelConfig from a `config.json` dictionary, with Mistral's own defaults. Raises ConfigError.

    A query attends to the last `sliding_window` positions, its own among them; null means all.
    """
    defaults = {"num_key_value_heads": 8, "sliding_window": 4096}
    merged = defaults | dict(raw)
    return dataclasses.replace(
        llama.from_hf(merged),
        architecture=ARCHITECTURE,
        sliding_window=checked(merged, SlidingWindowFields, FILE).sliding_window,
    )
