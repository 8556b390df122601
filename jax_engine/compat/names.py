"""Where each name of vLLM's modules is to be had here, and what the missing ones would need."""

_REASONING_PARSERS = "ReasoningParser ReasoningParserManager"
_MESSAGES = (
    "ChatCompletionRequest ResponsesRequest DeltaMessage DeltaToolCall DeltaFunctionCall "
    "ExtractedToolCallInformation ToolCall FunctionCall FunctionDefinition ChatCompletionToolsParam"
)
# (vLLM's module, ours, names that are the same in both)
SAME: tuple[tuple[str, str, str], ...] = (
    ("vllm", "jax_engine.compat.stand_ins", "LLM EngineArgs AsyncEngineArgs"),
    ("vllm", "jax_engine", "LLMEngine SamplingParams PoolingParams"),
    ("vllm", "jax_engine", "PromptType TextPrompt TokensPrompt RequestOutput CompletionOutput"),
    ("vllm", "jax_engine", "EmbeddingOutput EmbeddingRequestOutput PoolingOutput"),
    ("vllm", "jax_engine", "PoolingRequestOutput ScoringOutput ScoringRequestOutput"),
    ("vllm", "jax_engine", "ClassificationOutput ClassificationRequestOutput"),
    ("vllm", "jax_engine.serving.async_llm", "AsyncLLMEngine"),
    ("vllm.inputs", "jax_engine", "PromptType TextPrompt TokensPrompt EmbedsPrompt"),
    ("vllm.engine.arg_utils", "jax_engine.compat.stand_ins", "EngineArgs AsyncEngineArgs"),
    ("vllm.entrypoints.llm", "jax_engine.compat.stand_ins", "LLM"),
    ("vllm.engine.llm_engine", "jax_engine", "LLMEngine"),
    ("vllm.v1.engine.llm_engine", "jax_engine", "LLMEngine"),
    ("vllm.sampling_params", "jax_engine", "SamplingParams BeamSearchParams RequestOutputKind"),
    ("vllm.sampling_params", "jax_engine", "StructuredOutputsParams"),
    ("vllm.pooling_params", "jax_engine", "PoolingParams"),
    ("vllm.outputs", "jax_engine", "RequestOutput CompletionOutput EmbeddingRequestOutput"),
    ("vllm.outputs", "jax_engine", "EmbeddingOutput PoolingOutput PoolingRequestOutput"),
    ("vllm.outputs", "jax_engine", "ScoringOutput ScoringRequestOutput"),
    ("vllm.outputs", "jax_engine", "ClassificationOutput ClassificationRequestOutput"),
    ("vllm.outputs", "jax_engine.outputs", "RequestMetrics"),
    ("vllm.beam_search", "jax_engine", "BeamSearchOutput BeamSearchSequence"),
    ("vllm.logprobs", "jax_engine", "Logprob"),
    ("vllm.config", "jax_engine.pooling_params", "PoolerConfig"),
    ("vllm.config", "jax_engine.config.engine_config", "ProfilerConfig"),
    ("vllm.config", "jax_engine.config.kv_events_config", "KVEventsConfig"),
    ("vllm.config", "jax_engine.config.kv_transfer_config", "KVTransferConfig"),
    ("vllm.config.kv_transfer", "jax_engine.config.kv_transfer_config", "KVTransferConfig"),
    ("vllm.config", "jax_engine.config.reasoning_config", "ReasoningConfig"),
    ("vllm.config.reasoning", "jax_engine.config.reasoning_config", "ReasoningConfig"),
    ("vllm.config", "jax_engine.compat.stand_ins", "VllmConfig"),
    (
        "vllm.v1.metrics.reader",
        "jax_engine.engine.stats",
        "Metric Counter Gauge Histogram Vector",
    ),
    ("vllm.model_executor.model_loader", "jax_engine.compat.stand_ins", "ShardedStateLoader"),
    ("vllm.v1.engine.async_llm", "jax_engine.serving.async_llm", "AsyncLLM"),
    ("vllm.engine.async_llm_engine", "jax_engine.serving.async_llm", "AsyncLLMEngine"),
    (
        "vllm.v1.sample.logits_processor",
        "jax_engine.engine.vllm_parts",
        "LogitsProcessor AdapterLogitsProcessor RequestLogitsProcessor BatchUpdate",
    ),
    (
        "vllm.v1.sample.logits_processor",
        "jax_engine.engine.vllm_parts",
        "MoveDirectionality",
    ),
    (
        "vllm.v1.sample.logits_processor.builtin",
        "jax_engine.engine.vllm_parts",
        "process_dict_updates",
    ),
    ("vllm.transformers_utils.repo_utils", "jax_engine.compat.stand_ins", "hf_api"),
    ("vllm.lora.request", "jax_engine.lora.request", "LoRARequest"),
    ("vllm.tokenizers", "jax_engine.compat.stand_ins", "get_tokenizer"),
    ("vllm.transformers_utils.tokenizer", "jax_engine.compat.stand_ins", "get_tokenizer"),
    ("vllm.renderers.hf", "jax_engine.compat.stand_ins", "resolve_chat_template"),
    ("vllm.entrypoints.chat_utils", "jax_engine.compat.stand_ins", "resolve_hf_chat_template"),
    ("vllm.benchmarks.datasets", "jax_engine.compat.datasets", "SampleRequest"),
    ("vllm.benchmarks.datasets", "jax_engine.compat.datasets", "add_dataset_parser get_samples"),
    *(
        (module, "jax_engine.serving.parsers.plugin_classes", "ToolParser ToolParserManager")
        for module in (
            "vllm.tool_parsers",
            "vllm.tool_parsers.abstract_tool_parser",
            "vllm.entrypoints.openai.tool_parsers",
            "vllm.entrypoints.openai.tool_parsers.abstract_tool_parser",
        )
    ),
    *(
        (module, "jax_engine.serving.parsers.plugin_classes", _REASONING_PARSERS)
        for module in ("vllm.reasoning", "vllm.reasoning.abs_reasoning_parsers")
    ),
    (
        "vllm.reasoning.basic_parsers",
        "jax_engine.serving.parsers.plugin_classes",
        "BaseThinkingReasoningParser",
    ),
    *(
        (module, "jax_engine.serving.parsers.plugin_classes", _MESSAGES)
        for module in (
            "vllm.entrypoints.openai.protocol",
            "vllm.entrypoints.openai.engine.protocol",
            "vllm.entrypoints.openai.chat_completion.protocol",
            "vllm.entrypoints.openai.responses.protocol",
        )
    ),
    ("vllm.entrypoints.chat_utils", "jax_engine.compat.stand_ins", "make_tool_call_id"),
    ("vllm.tokenizers", "jax_engine.compat.stand_ins", "TokenizerLike"),
    ("vllm.transformers_utils.tokenizer", "jax_engine.compat.stand_ins", "AnyTokenizer"),
    ("vllm.logger", "jax_engine.compat.stand_ins", "init_logger"),
    ("vllm.platforms", "jax_engine.compat.stand_ins", "current_platform"),
    ("vllm.distributed", "jax_engine.compat.stand_ins", "cleanup_dist_env_and_memory"),
    ("vllm.utils", "jax_engine.compat.stand_ins", "random_uuid"),
    ("vllm.utils", "jax_engine.compat.stand_ins", "FlexibleArgumentParser"),
    ("vllm.utils.argparse_utils", "jax_engine.compat.stand_ins", "FlexibleArgumentParser"),
    ("vllm.utils.print_utils", "jax_engine.compat.stand_ins", "print_embeddings"),
    ("vllm.utils.network_utils", "jax_engine.compat.stand_ins", "get_ip get_open_port"),
    ("vllm.utils", "jax_engine.compat.stand_ins", "get_ip get_open_port"),
    ("vllm.version", "jax_engine.compat.vllm", "__version__"),
    ("vllm.envs", "jax_engine.compat.server_parts", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"),
    ("vllm.usage.usage_lib", "jax_engine.compat.server_parts", "UsageContext"),
    ("vllm.utils", "jax_engine.compat.server_parts", "set_ulimit"),
    ("vllm.utils.system_utils", "jax_engine.compat.server_parts", "set_ulimit"),
    ("vllm.entrypoints.launcher", "jax_engine.compat.server_parts", "serve_http"),
    ("vllm.entrypoints.launchers.launcher", "jax_engine.compat.server_parts", "serve_http"),
    ("vllm.entrypoints.utils", "jax_engine.compat.server_parts", "with_cancellation"),
    (
        "vllm.entrypoints.serve.utils.api_utils",
        "jax_engine.compat.server_parts",
        "with_cancellation",
    ),
)

# What begins so -> what it would need. The longest beginning counts.
MISSING: dict[str, str] = {
    "vllm.assets": "images, audio and videos, and jax-engine has text models only",
    "vllm.multimodal": "images, audio and videos, and jax-engine has text models only",
    "vllm.lora": "vLLM's own code for LoRA adapters; LoRARequest alone is shared",
    "vllm.distributed": "processes that share a model, and jax-engine runs it in one process",
    "vllm.config": "a part of vLLM's own configuration that jax-engine has no use for",
    "vllm.distributed.kv_transfer": "vLLM's own code of connectors; `kv_cache_dir` is a folder",
    "vllm.config.WeightTransferConfig": "weights handed over while the engine runs",
    "vllm.entrypoints.openai": "vLLM's own server; `jax-engine serve` is this engine's",
    "vllm.entrypoints.serve": "vLLM's own server; `jax-engine serve` is this engine's",
    "vllm.entrypoints.launchers": "vLLM's own server; `jax-engine serve` is this engine's",
    "vllm.benchmarks": "data sets from a hub",
    "vllm.model_executor": "models written in PyTorch",
    "vllm.forward_context": "models written in PyTorch",
    "vllm.v1": "vLLM's own inner parts",
}


def where(name: str) -> tuple[str, str] | None:
    """Our module and name of a dotted name of vLLM's; None: there is nothing of that kind."""
    module, _, attribute = name.rpartition(".")
    for theirs, ours, names in SAME:
        if theirs == module and attribute in names.split():
            return ours, attribute
    return None


def is_module(name: str) -> bool:
    """Whether some name of the table is in this module of vLLM's, or below it."""
    return any(theirs == name or theirs.startswith(f"{name}.") for theirs, _, _ in SAME)


def explanation(name: str) -> str:
    """A sentence that says what a name that is not here would need."""
    beginnings = [one for one in MISSING if name == one or name.startswith(f"{one}.")]
    if not beginnings:
        return f"{name} is not in jax-engine's stand-in for vLLM"
    return f"{name} is not in jax-engine: it needs {MISSING[max(beginnings, key=len)]}"
