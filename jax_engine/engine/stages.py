"""Pipeline parallelism: what stages do not compute yet, and what has no process of its own."""

import sys

from jax_engine.config import EngineConfig
from jax_engine.engine.dtypes import resolve_cache_dtype
from jax_engine.engine.several_devices import is_process_each
from jax_engine.errors import ConfigError
from jax_engine.models.load import check_division
from jax_engine.models.resolve import HubOptions
from jax_engine.operations import this_device


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
        hub=HubOptions(config.revision, config.download_dir, config.hf_token),
        hf_overrides=config.hf_overrides,
        tensor_parallel_size=config.tensor_parallel_size,
        num_stages=config.pipeline_parallel_size,
        enable_expert_parallel=config.enable_expert_parallel,
    )
