"""Engine settings of vLLM that this engine does not have: how each value is treated.

`tests/engine/test_vllm_settings.py` holds the tables to vLLM's own source: no setting of its engine
is missing, and each is accepted at vLLM's default. `make vllm-settings` notes what is new there.

An empty value (None, "", {}, []), or one that this engine satisfies anyway, is accepted silently.
Values that change how the work is done, but not its results, are named in one warning. Values that
would change outputs, or that ask for a missing feature, are refused.
"""

import logging
from collections.abc import Mapping
from typing import Any

from jax_engine.checks import shown
from jax_engine.errors import ConfigError

logger = logging.getLogger("jax_engine")

# Accepted silently with any value: they have no counterpart here.
SILENT: dict[str, Any] = {
    "aggregate_engine_logging": False, "allow_deprecated_quantization": False,
    "code_revision": None,
    "disable_custom_all_reduce": False, "disable_log_requests": True, "disable_log_stats": False,
    "dp_sync_interval": 16, "enable_ep_weight_filter": False, "enable_log_requests": False,
    "enable_trace_replay": False,
    "fail_on_environ_validation": False, "log_config_file": None, "log_level": None,
    "logging_config": None, "served_model_name": None, "shutdown_timeout": 0,
    "use_tqdm_on_load": True, "use_v2_block_manager": True,
}  # fmt: skip

# The values that are accepted silently, vLLM's default first; others with a warning.
WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    # Where the work is done
    "additional_config": (None,), "all2all_backend": ("allgather_reducescatter",),
    "cp_kv_cache_interleave_size": (None, 1), "cpu_distributed_timeout_seconds": (None,),
    "cpu_offload_gb": (0,), "cpu_offload_params": (None,), "data_parallel_address": (None,),
    "data_parallel_backend": ("mp",), "data_parallel_rpc_port": (None,),
    "dbo_decode_token_threshold": (32,), "dbo_prefill_token_threshold": (512,),
    "dcp_comm_backend": (None,), "dcp_kv_cache_interleave_size": (1,),
    "dcp_q_replicate": (None, False), "device_ids": (None,),
    "disable_nccl_for_dp_synchronization": (None, False, True),
    "distributed_timeout_seconds": (None,),
    "elastic_ep_max_dp_size": (None,), "enable_batch_sharded_sampling": (None, False),
    "enable_cumem_allocator": (False,), "enable_dbo": (False,), "enable_hc_sp": (False,),
    "enable_nccl_comm_suspend": (False,), "eplb_config": (None,),
    "expert_placement_strategy": ("linear",), "fault_tolerance_config": (None,),
    "kv_offloading_backend": ("native",),
    "kv_offloading_size": (None,), "master_addr": ("127.0.0.1",), "master_port": (29501,),
    "max_parallel_loading_workers": (None,),
    "numa_bind": (False,), "numa_bind_cpus": (None,), "numa_bind_nodes": (None,),
    "offload_backend": ("auto",), "offload_group_size": (0,),
    "offload_num_in_group": (1,), "offload_params": (None,), "offload_prefetch_step": (1,),
    "ray_workers_use_nsight": (False,), "enable_shm_tensor_arena": (False,),
    "sleep_mode_backend": ("cumem",), "sleep_mode_offload_cudagraph": (False,),
    "sleep_preserve_parameter_names": (None,), "ubatch_size": (0,), "watchdog_config": (None,),
    # How kernels are chosen and compiled
    "attention_backend": (None,), "attention_config": (None,), "compilation_config": (None,),
    "cudagraph_capture_sizes": (None,), "disable_cascade_attn": (None, False, True),
    "enable_flashinfer_autotune": (None, False, True),
    "gdn_prefill_backend": (None,), "ir_op_priority": (None,), "jit_monitor_mode": ("warn",),
    "jit_monitor_verbose": (False,), "kda_decode_backend": (None,), "kda_prefill_backend": (None,),
    "kernel_config": (None,), "linear_backend": ("auto",), "max_cudagraph_capture_size": (None,),
    "max_seq_len_to_capture": (8192,), "model_impl": ("auto", "vllm"), "moe_backend": ("auto",),
    "monokernel": (False,), "sparse_indexer_topk_backend": ("auto",),
    "optimization_level": (2, None, 0, 1, 3), "performance_mode": ("balanced",),
    "use_fp64_gumbel": (False,),
    # How requests are scheduled, and outputs handed on
    "diffusion_config": (None,), "max_num_active_seqs": (None,), "max_num_queued_reqs": (None,),
    "max_num_queued_tokens": (None,), "max_num_scheduled_tokens": (None,),
    "num_scheduler_steps": (1,), "max_num_partial_prefills": (1,), "scheduler_delay_factor": (0,),
    "disable_hybrid_kv_cache_manager": (None, False, True), "io_processor_plugin": (None,),
    "long_prefill_token_threshold_adaptive": (False,), "prefill_schedule_interval": (1,),
    "prefix_cache_retention_interval": (0, None), "prefix_match_unit": (None,),
    "renderer_num_workers": (1,), "scheduler_reserve_full_isl": (True, False),
    "swa_bounded_replay": (True, False), "watermark": (0.0,), "kv_sharing_fast_prefill": (False,),
    # How models with a state, of which there is none, keep it
    "enable_mamba_cache_stochastic_rounding": (False,),
    "enable_mamba_shared_prefix_checkpoint": (False,), "mamba_backend": ("triton",),
    "mamba_block_size": (None,), "mamba_cache_dtype": ("auto",), "mamba_cache_mode": (None,),
    "mamba_cache_philox_rounds": (0,), "mamba_config": (None,),
    "mamba_ssm_cache_dtype": ("auto",), "mamba_ssu_algorithm": (None,),
    "replayssm_buffer_len": (16,), "use_replayssm": (False,),
    # Files
    "ignore_patterns": ("original/**/*", ["original/**/*"]),
    "model_loader_extra_config": (None,), "pt_load_map_location": ("cpu",),
    "safetensors_load_strategy": (None, "lazy", "eager"),
    "safetensors_prefetch_block_size": (1 << 24,), "safetensors_prefetch_num_threads": (8,),
    # Metrics and traces
    "collect_detailed_traces": (None,), "cudagraph_metrics": (False,),
    "custom_histogram_buckets": (None,), "enable_layerwise_nvtx_tracing": (False,),
    "enable_logging_iteration_details": (False,), "enable_mfu_metrics": (False,),
    "enable_mm_processor_stats": (False,),
    "kv_cache_metrics": (False,), "kv_cache_metrics_sample": (0.01,),
    "per_request_spec_decode_metrics": ("none",),
    "otlp_traces_endpoint": (None,), "show_hidden_metrics_for_version": (None,),
    # Images, sounds, and how adapters are held
    "allowed_local_media_path": ("",), "allowed_media_domains": (None,),
    "disable_chunked_mm_input": (False,), "disable_mm_preprocessor_cache": (False, True),
    "ec_manager_config": (None,), "enable_mixed_moe_lora_format": (False,),
    "enable_mm_embeds": (False,), "enable_moe_shared_loras": (False,),
    "enable_tower_connector_lora": (False,), "fully_sharded_loras": (False,),
    "interleave_mm_strings": (False,), "language_model_only": (False, True),
    "limit_mm_per_prompt": (None,), "lora_dtype": ("auto",),
    "media_io_kwargs": (None,), "mm_device_do_normalize": (True, None),
    "mm_encoder_attn_backend": (None,), "mm_encoder_attn_dtype": (None,),
    "mm_encoder_fp8_scale_path": (None,), "mm_encoder_fp8_scale_save_margin": (1.5,),
    "mm_encoder_fp8_scale_save_path": (None,),
    "mm_encoder_only": (False,), "mm_encoder_tp_mode": ("weights",),
    "mm_hasher_algorithm": ("blake3",), "mm_ipc_gpu_memory_gb": (0,),
    "mm_processor_cache_gb": (4, 0), "mm_processor_cache_type": ("lru",),
    "mm_processor_device": ("auto",), "mm_processor_kwargs": (None,),
    "mm_shm_cache_max_object_size_mb": (128,), "mm_tensor_ipc": ("direct_rpc",),
    "specialize_active_lora": (False,), "skip_mm_profiling": (False, True),
    "video_pruning_method": ("evs",), "video_pruning_rate": (None,), "default_mm_loras": (None,),
    # What a server would do with the text
    "guided_decoding_backend": ("auto", "guidance", "llguidance"),
    "reasoning_parser_plugin": (None,), "structured_outputs_config": (None,),
}  # fmt: skip

# Short forms of keys of `speculative_config`, and older names of it.
SPECULATION = {
    "num_speculative_tokens": "num_speculative_tokens", "spec_method": "method",
    "spec_model": "model", "spec_tokens": "num_speculative_tokens", "speculative_model": "model",
}  # fmt: skip

_ONE_MACHINE = "all devices are of this machine"
_HERE = "engines that share requests are processes of this machine, behind one port"
_ONE_WAY = "devices share a model by tensor_parallel_size and pipeline_parallel_size alone"

# The values that are accepted, vLLM's default first; and why others are refused.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "aux_output_config": ((None,), "outputs have no auxiliary parts, such as routed experts"),
    "convert": (("auto", "none", "embed"), "a head for classes comes with the checkpoint"),
    "data_parallel_external_lb": ((False,), _HERE),
    "data_parallel_hybrid_lb": ((False,), _HERE),
    "data_parallel_multi_port_external_lb": ((False,), _HERE),
    "data_parallel_rank": ((None, 0), _HERE),
    "data_parallel_size_local": ((None,), _HERE),
    "data_parallel_start_rank": ((None, 0), _HERE),
    "decode_context_parallel_size": ((1,), _ONE_WAY),
    "device": (("auto", "cpu", "cuda", "gpu"), "JAX decides: set JAX_PLATFORMS"),
    "disable_sliding_window": ((False,), "windows are part of the model"),
    "ec_transfer_config": ((None,), "caches are not shared between engines"),
    "enable_elastic_ep": ((False,), "the number of engines stays as it is"),
    "enable_eplb": ((False,), "experts stay on their devices"),
    "enable_fault_tolerance": ((False,), "an engine that ends is not replaced"),
    "enable_return_routed_experts": ((False,), "which experts were used is not returned"),
    "enable_sleep_mode": ((False,), "weights and KV cache stay where they are"),
    "engram_config": ((None,), "no model here has n-gram memories"),
    "hf_config_path": ((None,), "config.json is read from the model; change it by hf_overrides"),
    "kv_cache_dtype_skip_layers": ((None,), "kv_cache_dtype is that of all layers"),
    "kv_transfer_config": (
        (None,),
        "engines share blocks through a folder alone: kv_cache_dir, or ExampleConnector",
    ),
    "logprobs_mode": (("raw_logprobs",), "log-probabilities are of the raw logits"),
    "lora_target_modules": ((None,), "all modules of an adapter are used"),
    "max_lora_cls_labels": ((None,), "adapters have no heads for classes"),
    "model_class_overrides": ((None,), "no code of other packages is loaded"),
    "model_weights": (("",), "weights are read from where model says"),
    "nnodes": ((1,), _ONE_MACHINE),
    "node_rank": ((0,), _ONE_MACHINE),
    "prefill_context_parallel_size": ((1,), _ONE_WAY),
    "quantization_config": ((None,), "it is read from the checkpoint"),
    "return_sampling_mask": ((False,), "it is not computed"),
    "rope_scaling": ((None,), "give hf_overrides={'rope_scaling': ...}"),
    "rope_theta": ((None,), "give hf_overrides={'rope_theta': ...}"),
    "runner": (("auto", "generate", "pooling"), "the engine generates and embeds"),
    "scheduler_cls": ((None,), "no code of other packages is loaded"),
    "task": (("auto", "generate", "embed", "embedding"), "the engine generates and embeds"),
    "tokens_only": ((False,), "set skip_tokenizer_init=True"),
    "watermark_config": ((None,), "outputs carry no watermark"),
    "weight_transfer_config": ((None,), "weights are those of the model's files"),
    "worker_cls": (("auto",), "no code of other packages is loaded"),
    "worker_extension_cls": (("",), "no code of other packages is loaded"),
}

DEFAULTS: dict[str, Any] = (
    SILENT
    | dict.fromkeys([*SPECULATION, "reasoning_parser"])
    | {name: values[0] for name, values in WITHOUT_EFFECT.items()}
    | {name: values[0] for name, (values, _) in REFUSED.items()}
)


# Other values of `load_format`: how vLLM reads files whose weights are the same in any way.
LOAD_FORMATS = {
    "bitsandbytes": "auto", "fastsafetensors": "safetensors", "instanttensor": "safetensors",
    "runai_streamer": "safetensors",
}  # fmt: skip

# Flags of these take several values.
LISTS = (
    "allowed_media_domains", "collect_detailed_traces", "cpu_offload_params",
    "cudagraph_capture_sizes", "device_ids", "ignore_patterns", "kv_cache_dtype_skip_layers",
    "logits_processors", "lora_target_modules", "numa_bind_cpus", "numa_bind_nodes",
    "offload_params", "served_model_name", "sleep_preserve_parameter_names",
)  # fmt: skip


def is_switch(name: str) -> bool:
    """Whether a setting of `DEFAULTS` is True or False, or one of them and None."""
    taken = WITHOUT_EFFECT.get(name) or REFUSED.get(name, ((SILENT.get(name),), ""))[0]
    return any(isinstance(one, bool) for one in taken)


def with_cudagraph_mode(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Moves `cudagraph_mode` out of `compilation_config`, the rest of which has no effect.

    vLLM accepts the mode in small letters, too, and None for the default.
    """
    compilation = settings.get("compilation_config")
    if not isinstance(compilation, Mapping) or "cudagraph_mode" not in compilation:
        return dict(settings)
    rest = {name: value for name, value in compilation.items() if name != "cudagraph_mode"}
    mode = compilation["cudagraph_mode"]
    moved = {"cudagraph_mode": mode.upper() if isinstance(mode, str) else mode}
    return {**settings, "compilation_config": rest, **moved}


def with_load_format(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces one of `LOAD_FORMATS`."""
    given = settings.get("load_format")
    if not isinstance(given, str) or given not in LOAD_FORMATS:
        return dict(settings)
    return {**settings, "load_format": LOAD_FORMATS[given]}


def with_reasoning_parser(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Enters `reasoning_parser` into `reasoning_config`; it stays beside it.

    Raises:
        ConfigError: `reasoning_config` names another one.
    """
    parser = settings.get("reasoning_parser")
    if not parser:
        return dict(settings)
    config = settings.get("reasoning_config") or {}
    keys = dict(config) if isinstance(config, Mapping) else dict(vars(config))
    named = keys.get("reasoning_parser") or parser
    if named != parser:
        raise ConfigError(
            f"reasoning_parser and reasoning_config's must be the same, got {shown(parser)} and "
            f"{shown(named)}: leave one of them out"
        )
    return {**settings, "reasoning_config": keys | {"reasoning_parser": parser}}


def with_speculative_config(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Enters the short forms of its keys into `speculative_config`; they stay beside it.

    Raises:
        ConfigError: One of them says something else than `speculative_config` does.
    """
    given = {name: settings[name] for name in SPECULATION if settings.get(name) is not None}
    if not given:
        return dict(settings)
    config = settings.get("speculative_config") or {}
    keys = dict(config) if isinstance(config, Mapping) else vars(config)
    for name, value in given.items():
        key = SPECULATION[name]
        if keys.setdefault(key, value) != value:
            raise ConfigError(
                f"{name} and speculative_config's {key} must be the same, got {shown(value)} and "
                f"{shown(keys[key])}: leave one of them out"
            )
    return {**settings, "speculative_config": keys}


def without_vllm_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns this engine's own settings, after checking vLLM's others.

    Raises:
        ConfigError: One of the others has a value that is refused.
    """
    own, ignored = {}, []
    for name, value in settings.items():
        if name not in DEFAULTS:
            own[name] = value
        elif name in REFUSED:
            taken, reason = REFUSED[name]
            if not among(value, taken):
                raise ConfigError(refused(name, value, taken, reason))
        elif name in WITHOUT_EFFECT and not among(value, WITHOUT_EFFECT[name]):
            ignored.append(f"{name}={shown(value)}")
    if ignored:
        logger.warning("these settings of vLLM have no effect here: %s", ", ".join(ignored))
    return own


def refused(name: str, value: Any, taken: tuple[Any, ...], reason: str) -> str:
    """The message about a value that is none of those that are taken."""
    return f"{name} must be {' or '.join(map(repr, taken))}, got {shown(value)}: {reason}"


def among(value: Any, taken: tuple[Any, ...]) -> bool:
    """Whether it is one of these values, or empty."""
    if value is None or (isinstance(value, str | Mapping | list | tuple | set) and not value):
        return True
    return any(type(value) is type(one) and value == one for one in taken) or (
        isinstance(value, float) and value in taken
    )
