"""The settings of the KV cache as a metric, whose labels are what there is to know."""

from jax_engine.config import EngineConfig
from jax_engine.engine.dtypes import resolve_cache_dtype
from jax_engine.metrics import Gauge

SETTINGS = (
    "block_size",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "num_gpu_blocks_override",
    "swap_space",
)


def cache_config_info(config: EngineConfig, num_gpu_blocks: int, max_model_len: int) -> Gauge:
    """vLLM's gauge of 1. `kv_cache_max_concurrency`: how many requests of full length fit."""
    size = num_gpu_blocks * config.block_size
    labels = {name: str(getattr(config, name)) for name in SETTINGS}
    labels |= {
        "cache_dtype": resolve_cache_dtype(config).name,
        "enable_prefix_caching": str(config.prefix_caching),
        "engine": "0",
        "num_gpu_blocks": str(num_gpu_blocks),
        "kv_cache_size_tokens": str(size),
        "kv_cache_max_concurrency": str(size / max_model_len),
    }
    return Gauge("vllm:cache_config_info", labels, 1)
