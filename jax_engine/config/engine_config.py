"""`EngineConfig`: all settings of an engine, with vLLM's names and defaults, checked when made.

The names of the modes of loading, scheduling, preemption and CUDA graphs stand here too, for all
who read them, and `ProfilerConfig`, which names the folder that `LLM.start_profile` writes to.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from jax_engine.checks import check_types, named_fields, shown, suggestion
from jax_engine.config.kv_events_config import KVEventsConfig
from jax_engine.config.kv_transfer_config import with_kv_transfer_config
from jax_engine.config.reasoning_config import ReasoningConfig
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.config.vllm_settings import (
    with_cudagraph_mode,
    with_load_format,
    with_reasoning_parser,
    with_speculative_config,
    without_vllm_settings,
)
from jax_engine.errors import ConfigError, InvalidRequestError
from jax_engine.pooling_params import PoolerConfig

Scheduling = Literal["unified", "sosp", "sosp-mixed"]
Policy = Literal["fcfs", "priority"]
PreemptionMode = Literal["recompute", "swap"]
PreemptionRule = Literal["recompute", "swap", "auto"]  # "auto": the cheaper one for each group
# What becomes a CUDA graph, in vLLM's words: nothing, each layer ("PIECEWISE"), the whole step. The
# last two name a mode for steps that only decode, and one for steps with prompts.
CudagraphMode = Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
LoadFormat = Literal["auto", "hf", "safetensors", "pt", "mistral", "sharded_state", "gguf", "dummy"]
ConfigFormat = Literal["auto", "hf", "mistral"]
TokenizerMode = Literal["auto", "hf", "fast", "slow", "mistral"]  # the middle three are one
# Values of `quantization` that are no method of a checkpoint, but what is done when one is loaded.
DEQUANTIZED, W8A8 = "dequantized", "w8a8"
# Edits of config.json: fields to replace, or a function of all of them
HfOverrides = Mapping[str, Any] | Callable[[dict[str, Any]], Any]


PROFILE_VARIABLE = "VLLM_TORCH_PROFILER_DIR"  # vLLM's, for the same purpose
DEFAULT_PROFILE_FOLDER = "jax_profile"


@dataclass(frozen=True, kw_only=True)
class ProfilerConfig:
    """Settings of a trace, which `jax.profiler` always makes.

    Attributes:
        profiler: "torch" or "cuda" in vLLM; here both mean JAX's.
        torch_profiler_dir: The folder.
        delay_iterations: Steps before vLLM's trace begins; here it always begins at once.
        max_iterations: Steps in vLLM's trace; here it always ends with `stop_profile`.
    """

    profiler: Literal["torch", "cuda"] | None = None
    torch_profiler_dir: str = ""
    delay_iterations: int = 0
    max_iterations: int = 0


def profile_folder(config: ProfilerConfig | Mapping[str, Any] | None) -> str:
    """The engine's setting, else the environment variable's, else ./jax_profile."""
    given: Any = None
    if isinstance(config, Mapping):
        given = config.get("torch_profiler_dir")
    elif config is not None:
        given = config.torch_profiler_dir
    return str(given or os.environ.get(PROFILE_VARIABLE) or DEFAULT_PROFILE_FOLDER)


DType = Literal["auto", "float32", "float", "bfloat16", "float16", "half"]
Backend = Literal["uni", "mp", "ray"]
KVCacheDType = Literal["auto", "fp8", "fp8_e4m3", "int8"]

MIN_BLOCK_SIZE, MAX_BLOCK_SIZE = 1, 256
MAX_LORA_RANK = 512
LONGEST = -1  # as `max_model_len`: what fits in memory
MAX_ENGINES = 1024
MAX_SWAP_SPACE = 2.0**20  # GiB: a larger number is a mistake
_COUNTS = (
    "max_num_batched_tokens",
    "num_gpu_blocks_override",
    "kv_cache_memory_bytes",
    "kv_cache_dir_bytes",
)


# None means the default, as in vLLM
_NONE_IS_DEFAULT = (
    "seed", "block_size", "max_num_seqs", "swap_space", "max_logprobs", "kv_cache_dtype",
    "cudagraph_mode", "enable_lora", "enable_prompt_embeds", "max_loras", "max_lora_rank",
    "kv_cache_dir_bytes",
)  # fmt: skip


@named_fields(ConfigError)
@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Settings of an engine; `resolve_lengths` or the device decides a field left None.

    Attributes:
        model: A directory in Hugging Face layout, a GGUF file, a hub name, or None for
            SmolLM2-135M-Instruct.
        tokenizer: Where the tokenizer comes from; None: from the model.
        revision: A branch, tag or commit of a model on the hub.
        tokenizer_revision: The same for its tokenizer; None: `revision` if both are in one
            repository.
        download_dir: Where files from the hub are kept; None: the hub's own cache.
        hf_token: A token for the hub, or True for the one that `hf auth login` saved.
        hf_overrides: Replacements for fields of config.json, or a function that takes the dict of
            its fields and returns it changed. Not for GGUF files.
        generation_config: Source of default sampling parameters. "auto": generation_config.json
            beside the model, if it exists; "vllm": vLLM's defaults; or a directory with such a
            file, whose end-of-sequence tokens count beside the model's.
        override_generation_config: Replacements for fields of that file: {"temperature": 0.5}.
        dtype: "auto": bfloat16 on a GPU, float32 on a CPU.
        quantization: The method by which the checkpoint was quantised, with vLLM's names; None: as
            the checkpoint says. Weights stay in that form, and products compute with it.
            "dequantized": they are turned into numbers of `dtype` when they are loaded.
            "w8a8": those of layers are rounded to int8 when they are loaded, with a scale for each
            row, and so are activations for each token; products are computed in integers. "fp8" and
            "bitsandbytes" (NF4), of a checkpoint that is not quantised: those of layers are rounded
            to such codes when they are loaded.
        seed: Seed of dummy weights and of requests without a seed. None is 0.
        block_size: B, tokens in a KV block.
        max_model_len: Longest prompt plus output, in tokens; None: the model's own limit; -1: what
            the KV cache has room for, and at most that limit.
        max_logprobs: Largest `logprobs` and `prompt_logprobs` of a request; -1: the whole
            vocabulary.
        max_num_seqs: Most sequences running at once.
        max_num_batched_tokens: Most tokens in one step. None: 2048, but at least max_model_len if
            prompts are not chunked, and max_num_seqs if scheduling is not unified. `AsyncLLM` and
            the server take 512 on a CPU if prompts are chunked, but at least max_num_seqs.
        gpu_memory_utilization: Share of the device's memory for weights, step and KV cache (None:
            0.9). On a CPU the share of RAM for the KV cache alone (None: 0.05).
        kv_cache_memory_bytes: Size of the KV cache, instead of measuring.
        kv_cache_dtype: "auto": the model's dtype. "fp8" (or "fp8_e4m3") and "int8" take a byte for
            each number, with a scale for each layer and KV head: the checkpoint's, else 1 for fp8,
            and for int8 what a short run of the model measures. int8 is not for latent attention.
        num_gpu_blocks_override: N, the number of KV blocks, instead of measuring.
        swap_space: GiB of host memory for swapped-out blocks.
        preemption_mode: "recompute", "swap", or "auto": the cheaper one for each group, by costs
            measured at the first preemption. None: recompute groups of one sequence, swap groups
            that have forked. Without free swap space, groups are recomputed.
        scheduling: "unified": one token budget for prompts and decodes, prompts in chunks.
            "sosp": the paper's system as published in vLLM 0.2.0, with separate prompt and decode
            steps; "sosp-mixed": its variant with both in one step.
        scheduling_policy: "fcfs", or "priority" (lower runs first).
        enable_prefix_caching: None: on with unified scheduling.
        prefix_caching_hash_algo: How blocks are named for other processes: "sha256" pickles a block
            before it is hashed, "sha256_cbor" writes it in CBOR, as other languages can.
        kv_events_config: Where the engine tells routers which blocks its prefix cache holds: a
            `KVEventsConfig`, or a dict of its fields; None: nowhere.
        kv_cache_dir: A folder in which full blocks of prompts are kept as files, so that a restart
            and other engines of the same model find them; it is made if need be. Who can write
            there decides what is answered. Needs prefix caching. None: blocks end with the engine.
        kv_cache_dir_bytes: The most bytes of all files there. Those used longest ago give way.
        enable_chunked_prefill: None: on with unified scheduling.
        long_prefill_token_threshold: Longest chunk of a prompt; 0: only the budget limits it.
        async_scheduling: Plan and launch a step while the one before it runs; the outputs are the
            same. None: on with unified scheduling.
        speculative_config: Guess tokens and verify several in one step: a `SpeculativeConfig`, or
            its fields. Outputs are the same, to the bit on a CPU. Needs unified scheduling.
        enable_lora: Whether requests may name LoRA adapters (`lora_request`).
        max_loras: Adapters that can be in one step; each has a slot on the device.
        max_lora_rank: The largest rank that a slot holds.
        max_cpu_loras: Adapters that are kept in the host's memory, at least max_loras; None:
            max_loras. The one that was used longest ago goes first, and is read again when needed.
        load_format: Which files hold the weights. "safetensors", or "pt": PyTorch's pickles
            (pytorch_model.bin), of which no code is run. "hf": one of these two, safetensors first.
            "mistral": files of Mistral's own, consolidated.safetensors. "gguf". "auto": what is
            there, Mistral's first if params.json is beside them, as in vLLM. "dummy": random
            weights drawn from `seed`; only the configuration is read. "sharded_state": files
            written by `LLMEngine.save_sharded_state`.
        config_format: Which file has the configuration: config.json ("hf"), or Mistral's
            params.json ("mistral"). "auto": params.json with Mistral's weights, else config.json.
        tokenizer_mode: Which files have the tokenizer. "hf", as "fast" and "slow": tokenizer.json
            and its like.
            "mistral": tekken.json or tokenizer.model.v1 to v11 of Mistral's. "auto": Mistral's
            where its weights are, or where there is no other.
        logits_processors: Classes of vLLM's kind of logits processors, or their names
            ("module:Class"). Each request gets objects of its own, on the host.
        profiler_config: Where `LLM.start_profile` writes: a `ProfilerConfig`, or its fields.
        pooler_config: Defaults of requests without `PoolingParams`, and how `LLM.score` compares: a
            `PoolerConfig`, or its fields.
        reasoning_config: What the model writes around its reasoning, for `thinking_token_budget`: a
            `ReasoningConfig`, or its fields, of which `reasoning_parser` alone may be given beside
            it, too. None: as the chat template tells.
        stream_interval: New tokens after which `AsyncLLM` and the server wake a sequence's reader,
            once it has its first token; the last tokens always do. More tokens at once cost the
            host less.
        skip_tokenizer_init: Token ids in and out, no text.
        enable_prompt_embeds: Whether a prompt may be `{"prompt_embeds": ..}`, the vectors that the
            first layer reads in place of tokens'.
        warmup: Compile steps before the first request. Steps for logit edits, limits on tokens,
            `prompt_logprobs` and embeddings, in or out, are still compiled when first used.
        enforce_eager: Run each step operation by operation: slow, for debugging.
        cudagraph_mode: What becomes a CUDA graph on a GPU. "PIECEWISE": each layer. "FULL": the
            whole step, which the host then launches at once; on an AMD GPU as "PIECEWISE". "NONE":
            nothing.
            "FULL_DECODE_ONLY" and "FULL_AND_PIECEWISE": "FULL" for steps that only decode, "NONE"
            or "PIECEWISE" for the others. Also accepted as a key of `compilation_config`.
        batch_invariant: On a GPU, add in one order for any number of rows, so that the bits of a
            row's logits and log-probabilities depend on its own sequence alone; slower. On a CPU
            that is always so, and the setting says that the bits are also the same on 1, 2, 4 and
            8 devices that share a model. None: what the variable VLLM_BATCH_INVARIANT says (1 or
            0), else False.
        tensor_parallel_size: How many devices share the model: heads, feed-forward networks and
            vocabulary are cut. Not yet for `batch_invariant` on GPUs. On a CPU a device is a
            process, with its share of the cores or those that VLLM_CPU_OMP_THREADS_BIND names.
        pipeline_parallel_size: How many stages the model has, each with some of the layers. A stage
            is a process, or as many as `tensor_parallel_size` says, and so many steps are in flight
            at once. VLLM_PP_LAYER_PARTITION says how many layers each has ("14,16"). Not on GPUs,
            nor for adapters, a draft model, or int8 caches.
        enable_expert_parallel: Whether devices that share a mixture of experts have whole experts,
            as many each, instead of a part of each expert's width.
        data_parallel_size: How many engines with the whole model share the requests of `LLM`,
            `AsyncLLM` or `jax-engine serve`; each model is in a process of its own. Each has its
            share of the cores, or a GPU of its own, and memory as if it were alone.
        distributed_executor_backend: Where the model runs. "uni": in the engine's process. "mp": in
            a process of its own, on a CPU in one for each device, to which the engine sends each
            step; if one of these dies or hangs, the engine ends them, and requests end with
            EngineDeadError. "ray": as "mp", but Ray starts them as actors on this machine. None:
            "uni"; but "mp" for more devices than a CPU is in this process, and for several stages.
        trust_remote_code: Accepted as in vLLM; no code of a checkpoint is ever run.

    Raises:
        ConfigError: A field is out of range or contradicts another.
    """

    model: str | None = None
    tokenizer: str | None = None
    revision: str | None = None
    tokenizer_revision: str | None = None
    download_dir: str | None = None
    hf_token: str | bool | None = field(default=None, repr=False)
    hf_overrides: HfOverrides | None = None
    generation_config: str = "auto"
    override_generation_config: Mapping[str, Any] | None = None
    dtype: DType = "auto"
    quantization: str | None = None
    seed: int = 0
    block_size: int = 16
    max_model_len: int | None = None
    max_logprobs: int = 20
    max_num_seqs: int = 256
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    kv_cache_dtype: KVCacheDType = "auto"
    num_gpu_blocks_override: int | None = None
    swap_space: float = 4.0
    preemption_mode: PreemptionRule | None = "auto"
    scheduling: Scheduling = "unified"
    scheduling_policy: Policy = "fcfs"
    enable_prefix_caching: bool | None = None
    prefix_caching_hash_algo: Literal["sha256", "sha256_cbor"] = "sha256"
    kv_events_config: KVEventsConfig | None = None  # made of a mapping, too
    kv_cache_dir: str | None = None
    kv_cache_dir_bytes: int = 10 * 2**30
    enable_chunked_prefill: bool | None = None
    long_prefill_token_threshold: int = 0
    async_scheduling: bool | None = None
    speculative_config: SpeculativeConfig | None = None  # made of a mapping, too
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    max_cpu_loras: int | None = None
    load_format: LoadFormat = "auto"
    config_format: ConfigFormat = "auto"
    tokenizer_mode: TokenizerMode = "auto"
    logits_processors: list[Any] | None = None
    profiler_config: ProfilerConfig | Mapping[str, Any] | None = None
    pooler_config: PoolerConfig | None = None  # made of a mapping, too
    reasoning_config: ReasoningConfig | None = None  # made of a mapping, too
    stream_interval: int = 1
    skip_tokenizer_init: bool = False
    enable_prompt_embeds: bool = False
    warmup: bool = False
    enforce_eager: bool = False
    cudagraph_mode: CudagraphMode = "PIECEWISE"
    batch_invariant: bool | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    enable_expert_parallel: bool = False
    data_parallel_size: int = 1
    distributed_executor_backend: Backend | None = None
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.name in _NONE_IS_DEFAULT and getattr(self, one.name) is None:
                object.__setattr__(self, one.name, one.default)
        if isinstance(self.pooler_config, Mapping):
            object.__setattr__(self, "pooler_config", _pooler(self.pooler_config))
        if isinstance(self.kv_events_config, Mapping):
            events = KVEventsConfig.of(self.kv_events_config)
            object.__setattr__(self, "kv_events_config", events)
        if isinstance(self.reasoning_config, Mapping):
            reasoning = ReasoningConfig.of(self.reasoning_config)
            object.__setattr__(self, "reasoning_config", reasoning)
        if isinstance(self.speculative_config, Mapping):
            given = self.speculative_config
            made = SpeculativeConfig.of(given) if given else None
            object.__setattr__(self, "speculative_config", made)
        check_types(self, ConfigError)
        _in_range("block_size", self.block_size, MIN_BLOCK_SIZE, MAX_BLOCK_SIZE)
        _in_range("max_num_seqs", self.max_num_seqs, 1)
        _in_range("max_logprobs", self.max_logprobs, -1)
        _in_range("stream_interval", self.stream_interval, 1)
        _in_range("tensor_parallel_size", self.tensor_parallel_size, 1)
        _in_range("pipeline_parallel_size", self.pipeline_parallel_size, 1)
        _in_range("data_parallel_size", self.data_parallel_size, 1, MAX_ENGINES)
        _in_range("seed", self.seed, 0, 2**64 - 1)
        _in_range("long_prefill_token_threshold", self.long_prefill_token_threshold, 0)
        for name in _COUNTS:
            if getattr(self, name) is not None:
                _in_range(name, getattr(self, name), 1)
        if self.max_model_len not in (None, LONGEST):
            _in_range("max_model_len", self.max_model_len, 1)
        self._check_memory()
        self._check_adapters()
        self._check_scheduling()
        if self.kv_cache_dir is not None:
            self._check_folder()

    def _check_folder(self) -> None:
        """Checks that the engine has a prefix cache, and its contents in its own process."""
        drafts, shared_by = self.speculative_config, self.tensor_parallel_size
        stages, backend = self.pipeline_parallel_size, self.distributed_executor_backend
        method = drafts and drafts.method
        wanted: list[tuple[str, object, str, bool]] = [
            ("enable_prefix_caching", self.prefix_caching, "True", self.prefix_caching),
            ("tensor_parallel_size", shared_by, "1", shared_by == 1),
            ("pipeline_parallel_size", stages, "1", stages == 1),
            ("distributed_executor_backend", backend, "'uni'", backend in (None, "uni")),
            ("speculative_config", method, "another method", method != "draft_model"),
        ]
        for name, value, needed, fits in wanted:
            if not fits:
                raise ConfigError(
                    f"kv_cache_dir needs {name}={needed}, got {shown(value)}: leave one of them out"
                )

    def _check_memory(self) -> None:
        share = self.gpu_memory_utilization
        if share is not None and not 0 < share <= 1:
            raise ConfigError(f"gpu_memory_utilization must be in (0, 1], got {shown(share)}")
        if not 0 <= self.swap_space <= MAX_SWAP_SPACE:
            raise ConfigError(
                f"swap_space must be in [0, {MAX_SWAP_SPACE:g}] GiB, got {shown(self.swap_space)}"
            )

    def _check_adapters(self) -> None:
        _in_range("max_loras", self.max_loras, 1)
        _in_range("max_lora_rank", self.max_lora_rank, 1, MAX_LORA_RANK)
        if self.max_cpu_loras is not None and self.max_cpu_loras < self.max_loras:
            raise ConfigError(
                f"max_cpu_loras must be at least max_loras ({self.max_loras}), got "
                f"{shown(self.max_cpu_loras)}: adapters reach the device from there"
            )

    def _check_scheduling(self) -> None:
        if self.scheduling == "unified":
            return
        for name in (
            "enable_prefix_caching",
            "enable_chunked_prefill",
            "async_scheduling",
            "speculative_config",
        ):
            if getattr(self, name):
                raise ConfigError(
                    f"{name} needs scheduling='unified', got scheduling={self.scheduling!r}: "
                    f"leave {name} out, or use unified scheduling"
                )

    @classmethod
    def from_settings(cls, **settings: Any) -> "EngineConfig":
        """Takes settings by this engine's names and by vLLM's others (see `vllm_settings`).

        Raises:
            ConfigError: A name is unknown (the message suggests one); or as `EngineConfig`.
        """
        return cls(**own_settings(settings))

    @property
    def world_size(self) -> int:
        """How many devices an engine has: those of all stages."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def num_cpu_loras(self) -> int:
        """Adapters that are kept in the host's memory."""
        return self.max_loras if self.max_cpu_loras is None else self.max_cpu_loras

    @property
    def prefix_caching(self) -> bool:
        if self.enable_prefix_caching is None:
            return self.scheduling == "unified"
        return self.enable_prefix_caching

    @property
    def chunked_prefill(self) -> bool:
        if self.enable_chunked_prefill is None:
            return self.scheduling == "unified"
        return self.enable_chunked_prefill

    @property
    def overlaps_steps(self) -> bool:
        if self.async_scheduling is None:
            return self.scheduling == "unified"
        return self.async_scheduling

    def resolve_lengths(self, model_limit: int) -> tuple[int, int]:
        """Returns (max_model_len, max_num_batched_tokens) for a model with `model_limit` positions.

        The model's loader checks the first, `jax_engine.core.admission.Limits` the second.
        """
        max_len = model_limit if self.max_model_len in (None, LONGEST) else self.max_model_len
        budget = self.max_num_batched_tokens
        if budget is None:
            budget = 2048 if self.chunked_prefill else max(2048, max_len)
            if self.scheduling != "unified":
                budget = max(budget, self.max_num_seqs)
        return max_len, budget


def own_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `EngineConfig`, after vLLM's others were moved there, warned of, or refused.

    Of the result there is nothing to warn of again: other processes are handed this.

    Raises:
        ConfigError: A name is unknown (the message suggests one), or a value is refused.
    """
    named = with_reasoning_parser(with_load_format(settings))
    moved = with_speculative_config(with_cudagraph_mode(with_kv_transfer_config(named)))
    own = without_vllm_settings(moved)
    known = [one.name for one in fields(EngineConfig)]
    for name in own:
        if name not in known:
            raise ConfigError(f"{name} is not an engine setting{suggestion(name, known)}")
    return own


def _pooler(given: Mapping[str, Any]) -> PoolerConfig:
    """What a flag's JSON says, or the message to another process.

    Raises:
        ConfigError: A field is unknown or out of range.
    """
    try:
        return PoolerConfig(**{str(name): value for name, value in given.items()})
    except (ConfigError, InvalidRequestError) as error:
        raise ConfigError(f"pooler_config: {error}") from error


def _in_range(name: str, value: int, low: int, high: int | None = None) -> None:
    if value < low or (high is not None and value > high):
        limit = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise ConfigError(f"{name} must be {limit}, got {shown(value)}")
