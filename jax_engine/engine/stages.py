"""Pipeline parallelism: what stages do not compute yet, and where they cannot be."""

import sys

from jax_engine.config import EngineConfig
from jax_engine.engine.dtypes import resolve_cache_dtype
from jax_engine.engine.several_devices import is_process_each
from jax_engine.errors import ConfigError
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
        lacking = "kv_cache_dtype='int8', whose scales one run of all layers measures,"
    if lacking is not None:
        raise ConfigError(
            f"pipeline_parallel_size must be 1 with {lacking}, which stages do not compute yet, "
            f"got {stages}: leave one of them out"
        )
