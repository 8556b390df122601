"""Engine settings of vLLM that this engine does not have: how each value is treated.

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
    "aggregate_engine_logging": False, "code_revision": None, "disable_cascade_attn": None,
    "disable_custom_all_reduce": False, "disable_log_requests": True, "disable_log_stats": False,
    "enable_trace_replay": False,
    "fail_on_environ_validation": False, "log_config_file": None, "log_level": None,
    "logging_config": None, "served_model_name": None, "shutdown_timeout": 0,
    "use_tqdm_on_load": True, "use_v2_block_manager": True,
}  # fmt: skip

# The values that are accepted silently, vLLM's default first; others with a warning.
WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    # Where the work is done
    "cpu_offload_gb": (0,), "cpu_offload_params": (None,), "device_ids": (None,),
    "distributed_timeout_seconds": (None,),
    "enable_cumem_allocator": (False,),
    "kv_offloading_backend": ("native",),
    "kv_offloading_size": (None,), "master_addr": ("127.0.0.1",), "master_port": (29501,),
    "max_parallel_loading_workers": (None,), "nnodes": (1,), "node_rank": (0,),
    "numa_bind": (False,), "offload_backend": ("auto",), "offload_group_size": (0,),
    "offload_num_in_group": (1,), "offload_params": (None,), "offload_prefetch_step": (1,),
    "ray_workers_use_nsight": (False,), "enable_shm_tensor_arena": (False,),
    # How kernels are chosen and compiled
    "attention_backend": (None,), "attention_config": (None,), "compilation_config": (None,),
    "cudagraph_capture_sizes": (None,), "enable_flashinfer_autotune": (None, False, True),
    "kernel_config": (None,), "linear_backend": ("auto",), "max_cudagraph_capture_size": (None,),
    "max_seq_len_to_capture": (8192,), "model_impl": ("auto", "vllm"), "moe_backend": ("auto",),
    "optimization_level": (None, 0, 1, 2, 3), "performance_mode": ("balanced",),
    "use_fp64_gumbel": (False,),
    # How requests are scheduled, and outputs handed on
    "diffusion_config": (None,), "max_num_active_seqs": (None,), "max_num_queued_reqs": (None,),
    "max_num_queued_tokens": (None,), "max_num_scheduled_tokens": (None,),
    "num_scheduler_steps": (1,), "max_num_partial_prefills": (1,), "scheduler_delay_factor": (0,),
    "disable_hybrid_kv_cache_manager": (None, False, True), "io_processor_plugin": (None,),
    "long_prefill_token_threshold_adaptive": (False,), "prefill_schedule_interval": (1,),
    "prefix_cache_retention_interval": (None,), "prefix_caching_hash_algo": ("sha256", "builtin"),
    "renderer_num_workers": (1,), "scheduler_reserve_full_isl": (True, False),
    "watermark": (0.0,), "kv_sharing_fast_prefill": (False,),
    # Files
    "config_format": ("auto", "hf"), "ignore_patterns": ("original/**/*",),
    "model_loader_extra_config": (None,), "pt_load_map_location": ("cpu",),
    "safetensors_load_strategy": (None, "lazy", "eager"),
    "safetensors_prefetch_block_size": (None,), "safetensors_prefetch_num_threads": (None,),
    "tokenizer_mode": ("auto", "hf", "fast"),
    # Metrics and traces
    "collect_detailed_traces": (None,), "cudagraph_metrics": (False,),
    "custom_histogram_buckets": (None,), "enable_layerwise_nvtx_tracing": (False,),
    "enable_logging_iteration_details": (False,), "enable_mfu_metrics": (False,),
    "kv_cache_metrics": (False,), "kv_cache_metrics_sample": (0.01,),
    "otlp_traces_endpoint": (None,), "show_hidden_metrics_for_version": (None,),
    # Images, sounds, and how adapters are held
    "allowed_local_media_path": ("",), "allowed_media_domains": (None,),
    "disable_chunked_mm_input": (False,), "disable_mm_preprocessor_cache": (False, True),
    "enable_mm_embeds": (False,), "fully_sharded_loras": (False,),
    "interleave_mm_strings": (False,), "language_model_only": (False, True),
    "limit_mm_per_prompt": (None,), "lora_dtype": ("auto",),
    "media_io_kwargs": (None,), "mm_encoder_attn_backend": (None,),
    "mm_encoder_only": (False,), "mm_encoder_tp_mode": ("weights",),
    "mm_processor_cache_gb": (4, 0), "mm_processor_cache_type": ("lru",),
    "mm_processor_kwargs": (None,), "skip_mm_profiling": (False, True),
    "video_pruning_rate": (None,), "default_mm_loras": (None,),
    # What a server would do with the text
    "guided_decoding_backend": ("auto", "guidance", "llguidance"), "reasoning_parser": ("",),
    "reasoning_config": (None,), "reasoning_parser_plugin": (None,),
    "structured_outputs_config": (None,),
}  # fmt: skip

# Short forms of keys of `speculative_config`, and older names of it.
SPECULATION = {
    "num_speculative_tokens": "num_speculative_tokens", "spec_method": "method",
    "spec_model": "model", "spec_tokens": "num_speculative_tokens", "speculative_model": "model",
}  # fmt: skip

_ONE_WAY = "devices share a model by tensor_parallel_size and pipeline_parallel_size alone"

# The values that are accepted, vLLM's default first; and why others are refused.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "convert": (("auto", "none", "embed"), "a head for classes comes with the checkpoint"),
    "data_parallel_rank": ((None, 0), _ONE_WAY),
    "decode_context_parallel_size": ((1,), _ONE_WAY),
    "device": (("auto", "cpu", "cuda", "gpu"), "JAX decides: set JAX_PLATFORMS"),
    "disable_sliding_window": ((False,), "windows are part of the model"),
    "ec_transfer_config": ((None,), "caches are not shared between engines"),
    "enable_eplb": ((False,), "experts stay on their devices"),
    "enable_prompt_embeds": ((False,), "prompts are text or token ids"),
    "enable_return_routed_experts": ((False,), "which experts were used is not returned"),
    "enable_sleep_mode": ((False,), "weights and KV cache stay where they are"),
    "hf_config_path": ((None,), "config.json is read from the model; change it by hf_overrides"),
    "kv_events_config": ((None,), "caches are not shared between engines"),
    "kv_transfer_config": ((None,), "caches are not shared between engines"),
    "logprobs_mode": (("raw_logprobs",), "log-probabilities are of the raw logits"),
    "lora_target_modules": ((None,), "all modules of an adapter are used"),
    "model_class_overrides": ((None,), "no code of other packages is loaded"),
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
    | dict.fromkeys(SPECULATION)
    | {name: values[0] for name, values in WITHOUT_EFFECT.items()}
    | {name: values[0] for name, (values, _) in REFUSED.items()}
)


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
            if not _among(value, taken):
                choices = " or ".join(map(repr, taken))
                raise ConfigError(f"{name} must be {choices}, got {shown(value)}: {reason}")
        elif name in WITHOUT_EFFECT and not _among(value, WITHOUT_EFFECT[name]):
            ignored.append(f"{name}={shown(value)}")
    if ignored:
        logger.warning("these settings of vLLM have no effect here: %s", ", ".join(ignored))
    return own


def _among(value: Any, taken: tuple[Any, ...]) -> bool:
    """Whether it is one of these values, or empty."""
    if value is None or (isinstance(value, str | Mapping | list | tuple | set) and not value):
        return True
    return any(type(value) is type(one) and value == one for one in taken) or (
        isinstance(value, float) and value in taken
    )
