"""Builds an engine's parts from a configuration: model, memory, worker, scheduler, tokenizer."""

import logging
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_engine.checks import shown
from jax_engine.config.engine_config import LONGEST, Backend, EngineConfig, HfOverrides
from jax_engine.core.admission import Limits
from jax_engine.core.block_manager import BlockManager
from jax_engine.core.scheduler import Scheduler
from jax_engine.engine.kv_event_publisher import KVEventPublisher, open_publisher
from jax_engine.engine.requests.default_sampling import suggested_ends
from jax_engine.engine.requests.prompt_embeds import EmbedsForm
from jax_engine.engine.startup.build_encoder import build_encoder, limits_of_encoder
from jax_engine.engine.startup.device_settings import (
    check_alike,
    check_cache,
    check_invariant,
    check_processes,
    check_shared,
    check_stages,
    in_order_of_devices,
    is_process_each,
    needs_invariant_kernels,
    resolve_cache_dtype,
    resolve_dtype,
)
from jax_engine.engine.startup.engine_memory import each_device, engine_memory, swapped_bytes
from jax_engine.engine.startup.open_draft import DraftModel, DraftParts, open_draft
from jax_engine.errors import ConfigError, OutOfMemoryError
from jax_engine.host_memory import allocating
from jax_engine.kv_store.folder_store import FolderStore
from jax_engine.kv_store.stored_blocks import check_folder, open_store
from jax_engine.lora.modules import Modules
from jax_engine.models.checkpoints.resolve import HubOptions
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.model_loader import LoadedModel, ModelFiles, open_model
from jax_engine.models.pooling_heads import PoolingHead
from jax_engine.operations import this_device
from jax_engine.parallel.collectives import ProcessRank, join_group, own_stage, process_ranks
from jax_engine.parallel.mesh import num_there
from jax_engine.processes.placement import ANYWHERE, Place, cores_of_ranks, own_cores
from jax_engine.processes.ray_actor import RayHost
from jax_engine.processes.runner_client import RemoteRunner, RunnerClient
from jax_engine.processes.stage_link import Folders
from jax_engine.progress_log import show_progress_lines
from jax_engine.speculation.speculator import MAX_DRAFT_TOKENS
from jax_engine.step import BlockMover, Capabilities, Runner
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from jax_engine.worker.compilation_cache import enable_compilation_cache
from jax_engine.worker.memory import (
    WATERMARK,
    MemoryProfile,
)
from jax_engine.worker.stage_runner import runner_of_stage
from jax_engine.worker.step_shape import largest_step_shape
from jax_engine.worker.worker import Worker

if TYPE_CHECKING:
    from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile

logger = logging.getLogger("jax_engine")

# Weights load in parallel with the rest of the start, after a time alone: both contend for the
# GIL, so a small model is ready sooner if it loads first.
ALONE_S = 1.5
ALL = "all that an engine holds and compiles"
RUNNER_MODULE = "jax_engine.engine.startup.runner_main"


@dataclass(frozen=True)
class Runners:
    """An engine's runners, and all that its controller knows of their model.

    Attributes:
        worker: The model's.
        limits: The engine's, within those of the model.
        tokenizer: None if it was not asked for.
    """

    model_config: ModelConfig
    model_source: Path
    memory: MemoryProfile
    limits: Limits
    head: PoolingHead | None
    worker: Runner
    draft: DraftParts | None
    tokenizer: Tokenizer | None


@dataclass(frozen=True)
class EngineParts:
    """The components of an `LLMEngine`.

    Attributes:
        modules: Makes the modules that adapters may change; None: they are those of the model.
        client: The process in which its runners are; None: this one.
        publisher: Tells routers what is in the prefix cache; None: nobody asks.
        store: Keeps blocks of prompts beyond the engine, as `kv_cache_dir` says; None: nothing.
        mover: Hands blocks to the store and takes them.
    """

    config: EngineConfig
    model_config: ModelConfig
    model_source: Path
    memory: MemoryProfile
    scheduler: Scheduler
    worker: Runner
    tokenizer: Tokenizer | None
    max_model_len: int
    eos_token_ids: frozenset[int]
    head: PoolingHead | None
    draft: DraftParts | None = None
    modules: Callable[[], Modules] | None = None
    client: RunnerClient | None = None
    publisher: KVEventPublisher | None = None
    store: FolderStore | None = None
    mover: BlockMover | None = None

    @property
    def embeds(self) -> EmbedsForm | None:
        """How prompts are taken that are embeddings; None: they are not."""
        if not self.config.enable_prompt_embeds:
            return None
        return EmbedsForm(self.model_config.spec.width, resolve_dtype(self.config.dtype).name)


def build_engine(config: EngineConfig, place: Place = ANYWHERE) -> EngineParts:
    """Loads the model, sizes the KV cache, and wires up the controller and the worker.

    Args:
        place: Where the processes of its runner run, if it has some.

    Raises:
        ConfigError, ModelNotFoundError, WeightsError, OutOfMemoryError: As the message says.
    """
    if config.data_parallel_size != 1:
        raise ConfigError(
            "data_parallel_size is the number of engines of LLM, AsyncLLM and `jax-engine serve`; "
            f"for a single one it must be 1, got {config.data_parallel_size}"
        )
    show_progress_lines()
    enable_compilation_cache()
    with allocating(ALL):
        return _build(config, place)


def _build(config: EngineConfig, place: Place) -> EngineParts:
    check_stages(config)
    if config.kv_cache_dir is not None:
        check_folder(config.kv_cache_dir)
    events, caches = config.kv_events_config, config.prefix_caching
    algorithm = config.prefix_caching_hash_algo
    publisher = open_publisher(events, algorithm, place.rank, prefix_caching=caches)
    client, with_tokenizer = None, not config.skip_tokenizer_init
    if _backend(config) != "uni":
        client, found = remote_runners(config, place)
        tokenizer = None
        if with_tokenizer:
            tokenizer = _tokenizer(config, found.model_source, hub_options(config))
    else:
        found = build_runners(config, with_tokenizer=with_tokenizer)
        tokenizer = found.tokenizer
    eos = set(found.model_config.eos_token_ids) | set(suggested_ends(config))
    eos |= set(tokenizer.eos_token_ids if tokenizer else ())
    store = mover = None
    if config.kv_cache_dir is not None:
        assert isinstance(found.worker, Worker), "the settings were checked"
        mover = found.worker
        store = open_store(config, mover)
    return EngineParts(
        config,
        found.model_config,
        found.model_source,
        found.memory,
        build_scheduler(config, found.limits, found.worker),
        found.worker,
        tokenizer,
        found.limits.max_model_len,
        frozenset(eos),
        found.head,
        found.draft,
        client=client,
        publisher=publisher,
        store=store,
        mover=mover,
    )


def _backend(config: EngineConfig) -> Backend:
    """Where the model runs. XLA makes a CPU several devices only where JAX has not begun."""
    if config.distributed_executor_backend is not None:
        return config.distributed_executor_backend
    if config.pipeline_parallel_size > 1:
        return "mp"
    if config.tensor_parallel_size == 1 or not this_device().in_host_memory:
        return "uni"
    return "mp" if num_there() < config.tensor_parallel_size else "uni"


def build_runners(config: EngineConfig, *, with_tokenizer: bool) -> Runners:
    """Loads the model, sizes the KV cache, and makes the worker, all in this process.

    Args:
        with_tokenizer: Loads the tokenizer, too, while weights are read.

    Raises:
        ConfigError, ModelNotFoundError, WeightsError, OutOfMemoryError: As the message says.
    """
    if config.max_model_len != LONGEST:
        return _build_runners(config, with_tokenizer)
    try:  # the check comes before weights are read
        return _build_runners(replace(config, max_model_len=None), with_tokenizer)
    except OutOfMemoryError as error:
        if not error.fitting:
            raise
        logger.info("max_model_len is %d: what the KV cache has room for", error.fitting)
        return _build_runners(replace(config, max_model_len=error.fitting), with_tokenizer)


def open_files(config: EngineConfig) -> ModelFiles:
    """Finds the model, and reads its configuration, as this process's part of it is loaded.

    Raises:
        ConfigError, ModelNotFoundError, WeightsError, OutOfMemoryError: As `open_model`.
    """
    batch_invariant = needs_invariant_kernels(config)
    check_shared(config, batch_invariant=batch_invariant)
    return open_model(
        config.model,
        dtype=resolve_dtype(config.dtype),
        load_format=config.load_format,
        config_format=config.config_format,
        seed=config.seed,
        max_model_len=config.max_model_len,
        hub=hub_options(config),
        hf_overrides=config.hf_overrides,
        quantization=config.quantization,
        batch_invariant=batch_invariant,
        in_order_of_devices=in_order_of_devices(config),
        tensor_parallel_size=config.tensor_parallel_size,
        stage=own_stage(),
        enable_expert_parallel=config.enable_expert_parallel,
    )


def _build_runners(config: EngineConfig, with_tokenizer: bool) -> Runners:
    dtype, hub = resolve_dtype(config.dtype), hub_options(config)
    batch_invariant = needs_invariant_kernels(config)
    files = open_files(config)
    model = files.abstract
    tokenizer_of_target = cache(
        lambda: _tokenizer(config, files.gguf or files.abstract.source, hub)
    )
    if model.config.spec.is_encoder:
        if config.kv_cache_dir is not None:
            raise ConfigError(
                f"kv_cache_dir must be None for {model.config.architecture}, which has no KV "
                f"cache, got {shown(config.kv_cache_dir)}"
            )
        limits = limits_of_encoder(config, model.config.max_context_len)
        runner, memory = build_encoder(config, files, limits, tokenizer_of_target, with_tokenizer)
        tokenizer = tokenizer_of_target() if with_tokenizer else None
        return Runners(
            model.config, model.source, memory, limits, model.head, runner, None, tokenizer
        )
    cache_dtype = resolve_cache_dtype(config)
    check_cache(config, model.config)
    if batch_invariant:
        check_invariant(model.config, dtype, cache_dtype)
        if config.enable_lora:
            raise ConfigError(
                "enable_lora with batch_invariant is not computed on this device: leave one of "
                "them out (enable_lora=True)"
            )
    limits = limits_of(config, model.config.max_context_len)
    max_len, budget = limits.max_model_len, limits.max_num_batched_tokens
    draft = open_draft(config, dtype, max_len, budget, files, tokenizer_of_target)
    if draft is not None:
        check_cache(config, draft.files.abstract.config)
    memory = engine_memory(config, model, max_len, budget, draft)
    num_cpu_blocks = int(config.swap_space * 2**30 // swapped_bytes(config, model))
    num_cpu_blocks = min(num_cpu_blocks, memory.num_blocks * 2)  # more would never be used
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(files.load)
        loading_draft = pool.submit(draft.files.load) if draft else None
        wait([loading], ALONE_S)
        worker = Worker(
            model,
            num_blocks=memory.num_blocks,
            num_cpu_blocks=num_cpu_blocks,
            block_size=config.block_size,
            max_model_len=max_len,
            max_rows=largest_step_shape(budget, config.max_num_seqs).num_rows,
            dtype=dtype,
            cache_dtype=cache_dtype,
            enforce_eager=config.enforce_eager,
            cudagraph_mode=config.cudagraph_mode,
            batch_invariant=batch_invariant,
            max_loras=config.max_loras if config.enable_lora else 0,
            max_lora_rank=config.max_lora_rank,
        )
        tokenizer = None
        if with_tokenizer:
            tokenizer = tokenizer_of_target()
        if config.load_format != "dummy":  # dummy weights are ready at once
            worker.prepare_first_step()
        worker.set_weights(loading.result())
        drafting = None
        if draft and loading_draft:
            drafting = _draft_parts(draft, config, model, memory.num_blocks)
            drafting.runner.set_weights(loading_draft.result())
    logger.info(
        "%d KV blocks of %d tokens in %s, %.2f GiB%s%s",
        memory.num_blocks,
        config.block_size,
        cache_dtype.name,
        memory.num_blocks * memory.block / 2**30,
        each_device(config),
        " with those of the draft model" if draft else "",
    )
    head = model.head
    return Runners(
        model.all_layers, model.source, memory, limits, head, worker, drafting, tokenizer
    )


def remote_runners(config: EngineConfig, place: Place = ANYWHERE) -> tuple[RunnerClient, Runners]:
    """Starts processes that do what `build_runners` does; returns them and what the first tells.

    This process holds no model, and takes no memory of the device.

    Args:
        place: Where they run.

    Raises:
        ConfigError: A setting of the model cannot be sent to another process.
        EngineDeadError: The process ended while it started.
        JaxEngineError: As `build_runners`.
    """
    size, stages = config.tensor_parallel_size, config.pipeline_parallel_size
    several, sent = stages > 1 or is_process_each(size), settings_of_runners(config)
    if several:
        check_processes(config)
    host = RayHost() if config.distributed_executor_backend == "ray" else None
    variables, mine = place.environment, place.cores or own_cores()
    cores = cores_of_ranks(config.world_size if several else 1, {**os.environ, **variables}, mine)
    if not several:
        told_first: list[Any] = [(sent, None, cores[0] or place.cores)]
        client = RunnerClient(
            RUNNER_MODULE, told_first, num_devices=size, variables=variables, host=host
        )
    else:
        memories, of_ranks = process_ranks(size, stages)
        if host is not None:  # nobody inherits a descriptor
            own = f"/proc/{os.getpid()}/fd"
            of_ranks = [seat._replace(memory=f"{own}/{seat.memory}") for seat in of_ranks]
        told_first = [(sent, seat, own) for seat, own in zip(of_ranks, cores, strict=True)]
        client = RunnerClient(
            RUNNER_MODULE, told_first, memories=memories, variables=variables, host=host
        )
    told, sizes = client.known[0]
    check_alike([sizes for _, sizes in client.known])
    remote = [RemoteRunner(client, place, each) for place, each in enumerate(sizes)]
    draft = None if told.draft is None else replace(told.draft, runner=remote[1])
    return client, replace(told, worker=remote[0], draft=draft)


def told_runners(
    config: EngineConfig, seat: ProcessRank | None, folders: Folders
) -> tuple[tuple[Runners, list[Capabilities]], list[Runner]]:
    """For a process of `remote_runners`: what it tells, all of it plain data, and its runners.

    Args:
        seat: Which of several processes it is; None: it is alone.
        folders: Folders of its sockets, and of those of the next stage.
    """
    if seat is not None:
        join_group(seat)
    enable_compilation_cache()
    with allocating(ALL):
        found = build_runners(config, with_tokenizer=False)
    drafting = [found.draft.runner] if found.draft else []
    runners = [runner_of_stage(found.worker, folders), *drafting]
    absent: Any = None
    draft = replace(found.draft, runner=absent) if found.draft else None
    told = replace(found, worker=absent, draft=draft)
    return (told, [one.capabilities for one in runners]), runners


def settings_of_runners(config: EngineConfig) -> EngineConfig:
    """The settings that the process of the runners gets: those of the model.

    Raises:
        ConfigError: One of them is no plain data.
    """
    given = config.speculative_config
    sent = replace(
        config,
        distributed_executor_backend="uni",
        logits_processors=None,
        profiler_config=None,
        override_generation_config=None,
        speculative_config=given if given and given.method == "draft_model" else None,
    )
    if not _is_plain(sent.hf_overrides):
        raise ConfigError(
            "hf_overrides must be plain data with distributed_executor_backend="
            f"{_backend(config)!r}, got {shown(sent.hf_overrides)}: give a dict of fields"
        )
    return sent


def _is_plain(overrides: HfOverrides | None) -> bool:
    """Whether another process can be told; of a function only its name would come there."""
    try:
        pickle.dumps(overrides)
    except Exception:  # whatever an object of others does
        return False
    return not callable(overrides)


def _draft_parts(
    draft: DraftModel, config: EngineConfig, target: LoadedModel, num_blocks: int
) -> DraftParts:
    """Makes the draft's runner, as yet without weights.

    Args:
        num_blocks: Those of the target's cache.
    """
    given = config.speculative_config
    assert given is not None, "it has opened the model"
    runner = Worker(
        draft.files.abstract,
        num_blocks=num_blocks + draft.num_scratch,
        num_cpu_blocks=0,
        block_size=config.block_size,
        max_model_len=draft.max_model_len,
        max_rows=largest_step_shape(draft.budget, MAX_DRAFT_TOKENS).num_rows,
        dtype=resolve_dtype(config.dtype),
        cache_dtype=resolve_cache_dtype(config),
        enforce_eager=config.enforce_eager if given.enforce_eager is None else given.enforce_eager,
        cudagraph_mode=config.cudagraph_mode,
    )
    of_device = target.num_bytes // config.tensor_parallel_size
    cost = draft.files.abstract.num_bytes / max(1, of_device)
    sizes = num_blocks, draft.max_model_len, draft.budget
    return DraftParts(runner, *sizes, cost, draft.tokenizers)


def hub_options(config: EngineConfig) -> HubOptions:
    """How files of the model are had that are not on this machine."""
    return HubOptions(config.revision, config.download_dir, config.hf_token)


def _tokenizer(config: EngineConfig, source: "Path | GgufFile", hub: HubOptions) -> Tokenizer:
    """Loads `config.tokenizer`, else the model's; the model's own in the model's revision.

    Args:
        source: Where the model is.
    """
    revision = config.tokenizer_revision
    if revision is None and config.tokenizer in (None, config.model):
        revision = config.revision
    hub = replace(hub, revision=revision)
    return load_tokenizer(config.tokenizer or source, hub, config.tokenizer_mode)


def limits_of(config: EngineConfig, model_limit: int) -> Limits:
    """The limits of steps and requests for a model with this many positions.

    Raises:
        ConfigError: Settings contradict each other.
    """
    max_len, budget = config.resolve_lengths(model_limit)
    threshold = config.long_prefill_token_threshold
    return Limits(
        config.max_num_seqs, budget, max_len, config.scheduling, config.chunked_prefill, threshold
    )


def build_scheduler(
    config: EngineConfig, limits: Limits, runner: Runner, *, watermark: float = WATERMARK
) -> Scheduler:
    """Makes the scheduler that the configuration asks for, and its block manager, for a runner.

    Args:
        watermark: As in `BlockManager`.
    """
    sizes = runner.capabilities
    num_blocks, prefix_caching = sizes.num_blocks, config.prefix_caching
    if not num_blocks:  # Without a cache, a block is the seat of a whole sequence.
        num_blocks, watermark, prefix_caching = limits.max_num_seqs, 0.0, False
    blocks = BlockManager(
        sizes.block_size,
        num_blocks,
        sizes.num_cpu_blocks,
        watermark=watermark,
        enable_prefix_caching=prefix_caching,
        table_width=sizes.table_width,
        host_room=runner.host_room,
    )
    return Scheduler(
        blocks,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=limits.max_model_len,
        scheduling=config.scheduling,
        policy=config.scheduling_policy,
        preemption_mode=config.preemption_mode,
        preemption_costs=runner.measure_costs,
        enable_chunked_prefill=limits.chunked_prefill,
        long_prefill_token_threshold=config.long_prefill_token_threshold,
        max_loras=sizes.max_loras,
        max_draft_tokens=MAX_DRAFT_TOKENS if config.speculative_config else 0,
        max_samples=sizes.max_samples,
        max_concurrent_batches=sizes.max_concurrent_batches,
    )
