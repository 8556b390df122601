"""Several devices that share a model: whether each is a process, and what they do not compute."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from jax_engine.config import EngineConfig
from jax_engine.errors import ConfigError
from jax_engine.operations import this_device
from jax_engine.step import Capabilities


def is_process_each(size: int) -> bool:
    """Whether each of so many devices is a process: on a CPU with the kernels by which they meet.

    Elsewhere one process has all devices.
    """
    meets = sys.platform == "linux" and find_spec("numba") is not None
    return size > 1 and meets and this_device().in_host_memory


def check_alike(sizes: Sequence[Sequence[Capabilities]]) -> None:
    """Refuses processes of which some have more memory than others, say.

    Args:
        sizes: Those of each process's runners, by rank.

    Raises:
        ConfigError: They differ.
    """
    for rank, each in enumerate(sizes):
        if each != sizes[0]:
            raise ConfigError(
                f"num_gpu_blocks_override must be set: rank {rank} has {each[0].num_blocks} KV "
                f"blocks, and rank 0 {sizes[0][0].num_blocks}"
            )


def check_shared(config: EngineConfig, *, batch_invariant: bool) -> None:
    """Refuses settings that need one device, before anything is read.

    Args:
        batch_invariant: Whether this device's kernels must be told of it.

    Raises:
        ConfigError: `tensor_parallel_size` is not 1 beside such a setting.
    """
    size = config.tensor_parallel_size
    if size > 1 and batch_invariant:
        raise ConfigError(
            "tensor_parallel_size must be 1 with batch_invariant on a GPU, which several devices "
            f"do not compute yet, got {size}: leave one of them out"
        )
