"""What devices and stages would hold of a model, for several numbers of them.

`python -m ... MODEL` prints it as JSON. `jax-engine doctor --model` asks it in a process of its
own. No weights are read.
"""

import dataclasses
import json
import sys
from typing import NamedTuple

import jax.numpy as jnp

from jax_engine.errors import ConfigError, JaxEngineError
from jax_engine.model_spec import ModelSpec
from jax_engine.models.config import ModelConfig
from jax_engine.models.leaves import abstract_leaves
from jax_engine.models.load import abstract_decoder, open_model
from jax_engine.operations import this_device
from jax_engine.parallel.divided import divided
from jax_engine.parallel.stages import layers_of_stages, staged
from jax_engine.worker.kv_cache import block_bytes

MOST = 16  # devices
STAGES = (2, 3, 4, 8)


class DeviceShare(NamedTuple):
    """What each of several devices holds.

    Attributes:
        size: How many devices share the model.
        weights: Bytes.
        kv_cache: Bytes of a token.
    """

    size: int
    weights: int
    kv_cache: int


class StageShare(NamedTuple):
    """What the fullest of several stages holds.

    Attributes:
        layers: The number of layers of each stage.
        weights: Bytes.
        kv_cache: Bytes of a token.
    """

    layers: list[int]
    weights: int
    kv_cache: int


def shares_of_model(model: str) -> tuple[list[DeviceShare], list[StageShare]]:
    """For each number of devices that can share a model, up to MOST, and for some of stages.

    Raises:
        ModelNotFoundError, ConfigError: As `open_model`.
    """
    numbers = jnp.dtype(this_device().auto_dtype)
    config = open_model(model, dtype=numbers, load_format="dummy").abstract.config
    return _devices(config, numbers), _stages(config, numbers)


def _devices(config: ModelConfig, numbers: jnp.dtype) -> list[DeviceShare]:
    found = []
    for size in range(1, MOST + 1):
        try:
            share = divided(config.spec, size)
        except ConfigError:
            continue
        found.append(DeviceShare(size, *_held(config, share, numbers)))
    return found


def _stages(config: ModelConfig, numbers: jnp.dtype) -> list[StageShare]:
    found, num_layers = [], config.spec.num_layers
    for size in STAGES:
        if size <= num_layers:
            layers = layers_of_stages(num_layers, size, environment={})
            held = [_held(config, staged(config.spec, each), numbers) for each in layers]
            most = [max(each) for each in zip(*held, strict=True)]
            found.append(StageShare([len(each) for each in layers], *most))
    return found


def _held(config: ModelConfig, share: ModelSpec, numbers: jnp.dtype) -> tuple[int, int]:
    """Bytes of the weights and of a token's KV cache of a part of the model."""
    leaves = abstract_leaves(abstract_decoder(share, numbers)[1], share)
    weights = sum(leaf.num_bytes for leaf in leaves.values())
    return weights, block_bytes(dataclasses.replace(config, spec=share), 1, numbers)


if __name__ == "__main__":
    try:
        print(json.dumps(shares_of_model(sys.argv[1])))
    except JaxEngineError as error:
        sys.exit(str(error))
