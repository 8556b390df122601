"""What fits in memory: the KV blocks of an engine, and the part of a model that each device holds.

KV blocks get what the weights and the largest step leave free. There is no trial run: the compiler
reports what a step needs (`memory_analysis`). On a CPU the KV cache gets a fixed share of RAM
instead, since the user's programs need the rest.

`python -m jax_engine.worker.memory MODEL` prints as JSON what each number of devices and of stages
would hold of a model. `jax-engine doctor --model` asks it in a process of its own. No weights are
read.
"""

import dataclasses
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from jax_engine.errors import ConfigError, JaxEngineError, OutOfMemoryError
from jax_engine.host_memory import gib
from jax_engine.model_spec import ModelSpec
from jax_engine.models.leaves import abstract_leaves
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.model_loader import abstract_decoder, open_model
from jax_engine.operations import memory_bytes, this_device
from jax_engine.parallel.partition import divided, layers_of_stages, staged
from jax_engine.worker.kv_cache import block_bytes

WATERMARK = 0.01  # share of the blocks that admission leaves free (paper, section 4.3)


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """Sizes in bytes, and the number of KV blocks that follows from them.

    Attributes:
        total: Memory of the device, or RAM on a CPU.
        budget: The part of `total` that the engine may use.
        weights: Weights of the model, and of its draft model.
        step: Temporaries of the largest compiled step; 0 if the budget does not include them.
        block: One KV block in all layers, of both models.
        num_blocks: Number of blocks that fit, at most `useful_blocks`.
    """

    total: int
    budget: int
    weights: int
    step: int
    block: int
    num_blocks: int


def profile_memory(
    *,
    share: float | None,
    weights: int,
    block: int,
    useful_blocks: int,
    step_bytes: Callable[[], int],
    scratch: int = 0,
) -> MemoryProfile:
    """The number of KV blocks for the default device.

    Args:
        share: `gpu_memory_utilization`, or None for the device's default.
        useful_blocks: The most blocks that can ever be in use at once.
        step_bytes: Compiles the largest step and returns its temporary bytes.
        scratch: What the caches take beside these blocks.
    """
    device, total = this_device(), memory_bytes()
    budget = int(total * (device.memory_share if share is None else share))
    if device.in_host_memory:
        step = 0
        fits = (budget - scratch) // block
    else:
        step = step_bytes()
        fits = (budget - weights - step - scratch) // block
    return MemoryProfile(total, budget, weights, step, block, max(0, min(int(fits), useful_blocks)))


def useful_blocks(max_model_len: int, max_num_seqs: int, block_size: int) -> int:
    """Blocks with which `max_num_seqs` sequences of `max_model_len` fit at once."""
    table_width = -(-max_model_len // block_size)
    return math.ceil(max_num_seqs * (table_width + 1) / (1 - WATERMARK))


def check_longest_sequence_fits(
    profile: MemoryProfile, *, max_model_len: int, block_size: int, overridden: bool
) -> None:
    """Refuses to start an engine in which a sequence of max_model_len could never run.

    Raises:
        OutOfMemoryError: With all the numbers, the longest length that would fit, and the one
            setting to change.
    """
    spare = 1 + int(WATERMARK * profile.num_blocks)  # the admission rule's head-room
    needed = -(-max_model_len // block_size) + spare
    if needed <= profile.num_blocks:
        return
    fitting = max(0, (profile.num_blocks - spare) * block_size)
    if overridden:
        advice = f"set num_gpu_blocks_override={needed}"
    elif fitting > 1:
        advice = f"set max_model_len={fitting}"
    else:
        advice = "set a larger gpu_memory_utilization"
    raise OutOfMemoryError(
        f"max_model_len {max_model_len} needs {needed} KV blocks of {block_size} tokens "
        f"({gib(needed * profile.block)}), but there are {profile.num_blocks}: memory "
        f"{gib(profile.total)}, of which {gib(profile.budget)} may be used; weights "
        f"{gib(profile.weights)}, step {gib(profile.step)}. The longest that fits is {fitting} "
        f"tokens: {advice}.",
        fitting=fitting,
    )


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
