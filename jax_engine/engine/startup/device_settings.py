"""The settings of an engine that depend on its device: dtypes, batch invariance, devices, stages.

Settings name the dtypes of weights, activations and KV cache. `batch_invariant` says whether a
model's kernels must be told of it; a GPU has such kernels for some models only. Several devices
that share a model are processes on a CPU, and all in one process elsewhere. Stages (pipeline
parallelism) are always processes.

What a device, several of them, or stages do not compute yet is refused here, before weights are
read or processes started.
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import jax.numpy as jnp

from jax_engine.checks import shown
from jax_engine.config.engine_config import EngineConfig
from jax_engine.errors import ConfigError
from jax_engine.models.checkpoints.resolve import HubOptions
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.model_loader import check_division
from jax_engine.operations import lacks_invariance, this_device
from jax_engine.step import Capabilities

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


def check_cache(config: EngineConfig, model: ModelConfig) -> None:
    """
    Raises:
        ConfigError: The model's cache cannot have the dtype, or the blocks, that were asked for.
    """
    for chunk in (one.chunk for one in model.spec.attentions):
        if chunk is not None and chunk % config.block_size:
            raise ConfigError(
                f"block_size must divide the model's attention_chunk_size ({chunk}), or "
                f"max_model_len be at most that, got block_size={config.block_size}"
            )
    if config.kv_cache_dtype == "int8" and model.spec.attentions[0].latent is not None:
        raise ConfigError(
            "kv_cache_dtype must be 'auto' or 'fp8' for a model with latent attention, whose "
            "latents and rotated parts would share one scale, got 'int8'"
        )


VARIABLE = "VLLM_BATCH_INVARIANT"
INSTEAD = "leave batch_invariant out, or run on a CPU, where it is always so"


def needs_invariant_kernels(config: EngineConfig) -> bool:
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
    value = os.environ.get(VARIABLE, "").strip() or "0"
    if value not in ("0", "1"):
        raise ConfigError(f"the variable {VARIABLE} must be 0 or 1, got {shown(value)}")
    return value == "1"


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


def check_stages(config: EngineConfig) -> None:
    """Refuses settings that need one stage, before any process is started.

    Raises:
        ConfigError: `pipeline_parallel_size` is not 1 beside such a setting, or here.
    """
    stages = config.pipeline_parallel_size
    if stages == 1:
        return
    backend = config.distributed_executor_backend
    if backend not in (None, "mp"):
        raise ConfigError(
            "distributed_executor_backend must be 'mp' with several stages, each of which is a "
            f"process (pipeline_parallel_size={stages}), got {backend!r}"
        )
    if sys.platform != "linux" or not this_device().in_host_memory:
        raise ConfigError(
            "pipeline_parallel_size must be 1 on this device: stages are processes of a CPU under "
            f"Linux, got {stages}"
        )
    if config.tensor_parallel_size > 1 and not is_process_each(config.tensor_parallel_size):
        raise ConfigError(
            f"tensor_parallel_size must be 1 with several stages ({stages}) where the kernels for "
            f"a CPU are not there, got {config.tensor_parallel_size}: install numba"
        )
    lacking, speculation = None, config.speculative_config
    if config.enable_lora:
        lacking = "enable_lora"
    elif speculation is not None and speculation.method == "draft_model":
        lacking = "a draft model (speculative_config)"
    elif resolve_cache_dtype(config).name == "int8":
        lacking = "kv_cache_dtype='int8'"  # one run of all layers measures its scales
    if lacking is not None:
        raise ConfigError(
            f"pipeline_parallel_size must be 1 with {lacking}, which stages do not compute yet, "
            f"got {stages}: leave one of them out"
        )


def check_processes(config: EngineConfig) -> None:
    """Refuses more stages or devices than the model can be divided among.

    Each would be a process, and all of them would find out that it has nothing to do.

    Raises:
        ConfigError: The model cannot be divided so.
        JaxEngineError: Its configuration cannot be read: as `build_engine`.
    """
    check_division(
        config.model,
        load_format=config.load_format,
        config_format=config.config_format,
        hub=HubOptions(config.revision, config.download_dir, config.hf_token),
        hf_overrides=config.hf_overrides,
        tensor_parallel_size=config.tensor_parallel_size,
        num_stages=config.pipeline_parallel_size,
        enable_expert_parallel=config.enable_expert_parallel,
    )
