"""The engine's settings in groups, as the help of commands shows them."""

# The name of each group, and its fields of `EngineConfig` in the order of the help.
GROUPS: dict[str, tuple[str, ...]] = {
    "model": (
        "model", "tokenizer", "revision", "tokenizer_revision", "download_dir", "hf_token",
        "hf_overrides", "load_format", "dtype", "quantization", "generation_config",
        "override_generation_config", "trust_remote_code", "skip_tokenizer_init",
    ),
    "limits": (
        "max_model_len", "max_num_seqs", "max_num_batched_tokens", "max_logprobs",
        "long_prefill_token_threshold",
    ),
    "memory": (
        "gpu_memory_utilization", "kv_cache_memory_bytes", "kv_cache_dtype",
        "num_gpu_blocks_override", "block_size", "swap_space", "enable_prefix_caching",
    ),
    "scheduling": (
        "scheduling", "scheduling_policy", "preemption_mode", "enable_chunked_prefill",
        "async_scheduling", "stream_interval", "speculative_config",
    ),
    "adapters": ("enable_lora", "max_loras", "max_lora_rank", "max_cpu_loras"),
    "running": (
        "seed", "warmup", "enforce_eager", "cudagraph_mode", "batch_invariant",
        "tensor_parallel_size", "pipeline_parallel_size", "enable_expert_parallel",
        "data_parallel_size", "distributed_executor_backend",
        "logits_processors", "pooler_config", "profiler_config",
    ),
}  # fmt: skip

GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}
