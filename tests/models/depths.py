"""The same family at another depth: a case's config.json with another number of layers."""

from typing import Any

from jax_engine.models.model_config import ModelConfig
from jax_engine.models.registry import config_from_hf

NAMES_OF_DEPTH = ("num_hidden_layers", "n_layer", "n_layers")
# Lists with an entry for each layer; without them, a family's own rule fills any depth.
LISTS = ("layer_types", "no_rope_layers", "mlp_only_layers", "mlp_layer_types")


def at_depth(config: dict[str, Any], num_layers: int) -> ModelConfig:
    """The model of this config.json with so many layers, by the family's own patterns."""
    depth = {name: num_layers for name in NAMES_OF_DEPTH if name in config}
    assert len(depth) == 1
    return config_from_hf({k: v for k, v in config.items() if k not in LISTS} | depth)
