"""What each number of devices would hold of a model: `python -m ... MODEL` prints it as JSON.

`jax-engine doctor --model` asks it in a process of its own. No weights are read.
"""

import dataclasses
import json
import sys
from typing import NamedTuple

import jax.numpy as jnp

from jax_engine.errors import ConfigError, JaxEngineError
from jax_engine.models.leaves import abstract_leaves
from jax_engine.models.load import abstract_decoder, open_model
from jax_engine.operations import this_device
from jax_engine.parallel.divided import divided
from jax_engine.worker.kv_cache import block_bytes

MOST = 16  # devices


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


def shares_of_devices(model: str) -> list[DeviceShare]:
    """For each number of devices that can share a model, up to MOST.

    Raises:
        ModelNotFoundError, ConfigError: As `open_model`.
    """
    numbers = jnp.dtype(this_device().auto_dtype)
    config = open_model(model, dtype=numbers, load_format="dummy").abstract.config
    found = []
    for size in range(1, MOST + 1):
        try:
            share = divided(config.spec, size)
        except ConfigError:
            continue
        leaves = abstract_leaves(abstract_decoder(share, numbers)[1], share)
        weights = sum(leaf.num_bytes for leaf in leaves.values())
        own = dataclasses.replace(config, spec=share)
        found.append(DeviceShare(size, weights, block_bytes(own, 1, numbers)))
    return found


if __name__ == "__main__":
    try:
        print(json.dumps(shares_of_devices(sys.argv[1])))
    except JaxEngineError as error:
        sys.exit(str(error))
