"""What an engine's parts take of a device's memory, and how many KV blocks are left.

Sizes are those of the target and its draft model together. Several devices that share a model, or
stages of it, may be processes of one machine, which have their memory in common.
"""

import logging
from dataclasses import replace

import jax

from jax_engine.config.engine_config import EngineConfig
from jax_engine.engine.startup.device_settings import (
    needs_invariant_kernels,
    resolve_cache_dtype,
    resolve_dtype,
)
from jax_engine.engine.startup.open_draft import DraftModel
from jax_engine.host_memory import check_fits
from jax_engine.lora.slot_weights import AdapterSlots
from jax_engine.models.model_loader import LoadedModel
from jax_engine.operations import this_device
from jax_engine.parallel.collectives import own_rank
from jax_engine.progress_log import compiling
from jax_engine.sampling.sampling_inputs import ALL_STAGES
from jax_engine.speculation.speculator import MAX_DRAFT_TOKENS
from jax_engine.worker.compiled_steps import CompiledSteps
from jax_engine.worker.kv_cache import block_bytes, kv_cache_shape, scales_shape
from jax_engine.worker.memory import (
    MemoryProfile,
    check_longest_sequence_fits,
    profile_memory,
    useful_blocks,
)
from jax_engine.worker.step_shape import StepShape, largest_step_shape

logger = logging.getLogger("jax_engine")

FLOAT32_BYTES = 4
PROVISIONAL_BLOCKS = 64  # a step's temporaries do not depend on the size of the pool


def sampler_bytes(steps: CompiledSteps, rows: int, vocab_size: int) -> int:
    """Memory of a sampler in programs of its own, with the logits of two steps in flight."""
    if not this_device().branches_wait:
        return 0
    sampler = steps.sample.prepare(rows, vocab_size, ALL_STAGES).memory_analysis()
    return int(sampler.temp_size_in_bytes) + 2 * FLOAT32_BYTES * rows * vocab_size


def _step_bytes(
    config: EngineConfig,
    model: LoadedModel,
    max_len: int,
    largest: StepShape,
    *,
    batch_invariant: bool,
    slots: AdapterSlots | None = None,
) -> int:
    """Compiles the largest step of a model; returns its temporary bytes, the sampler's included."""
    largest = replace(largest, lora=slots is not None)
    dtype = resolve_cache_dtype(config)
    steps = CompiledSteps(
        model,
        block_size=config.block_size,
        table_width=-(-max_len // config.block_size),
        max_rows=largest.num_rows,
        dtype=resolve_dtype(config.dtype),
        kv_scales=scales_shape(model.config, dtype),
        cudagraph_mode=config.cudagraph_mode,
        batch_invariant=batch_invariant,
        slots=slots,
    )
    shape = kv_cache_shape(model.config, PROVISIONAL_BLOCKS, config.block_size)
    kv_cache = jax.ShapeDtypeStruct(shape, dtype)
    with compiling(logger, f"a {largest}, to see how much memory it takes"):
        compiled = steps.compile(largest, kv_cache)
    step = int(compiled.memory_analysis().temp_size_in_bytes)
    if largest.embeds:  # which a step in flight and the one behind it are given
        size = resolve_dtype(config.dtype).itemsize
        step += 2 * largest.num_tokens * model.config.spec.width * size
    return step + sampler_bytes(steps, largest.num_rows, model.config.spec.vocab_size)


def each_device(config: EngineConfig) -> str:
    """What to say of sizes that several devices have each; "" of one device, or of shared RAM."""
    apart = config.tensor_parallel_size > 1 and not this_device().in_host_memory
    return " on each device" if apart else ""


def swapped_bytes(config: EngineConfig, model: LoadedModel) -> int:
    """What the host holds of a block that is swapped out; the draft's are computed anew.

    One process writes down what all of its devices have, and copies once. Several have their own.
    """
    block = block_bytes(model.all_layers, config.block_size, resolve_cache_dtype(config))
    return block if own_rank() is None else block * config.tensor_parallel_size


def draft_bytes(config: EngineConfig, draft: DraftModel) -> tuple[int, int]:
    """Bytes of the draft model's weights, and of its part of a block, in all processes together.

    It is not cut: each process has all of it.
    """
    model = draft.files.abstract
    block = block_bytes(model.config, config.block_size, resolve_cache_dtype(config))
    times = 1 if own_rank() is None else config.tensor_parallel_size
    return times * model.num_bytes, times * block


def _slots(config: EngineConfig, model: LoadedModel) -> AdapterSlots | None:
    """The adapters' slots, not made yet; None if there are none."""
    if not config.enable_lora:
        return None
    dtype = resolve_dtype(config.dtype)
    return AdapterSlots(model, config.max_loras, config.max_lora_rank, dtype)


def engine_memory(
    config: EngineConfig, model: LoadedModel, max_len: int, budget: int, draft: DraftModel | None
) -> MemoryProfile:
    """The sizes of the target and its draft model together; their steps run in turns.

    The slots of adapters count as weights. Of several devices, the sizes are those of each.
    """
    slots = _slots(config, model)
    dtype = resolve_cache_dtype(config)
    block = block_bytes(model.all_layers, config.block_size, dtype)  # stages are on one machine
    weights, scratch = model.num_bytes + (slots.num_bytes if slots else 0), 0
    copied = model.mesh is not None and model.mesh.copies_cache
    if own_rank() is not None or copied:  # all have their blocks in the same memory
        block *= config.tensor_parallel_size
    if each_device(config):
        weights, block = (size // config.tensor_parallel_size for size in (weights, block))
    if slots is not None and this_device().in_host_memory:
        check_fits(f"the weights and {slots.count} slots for adapters (max_loras)", weights)
    if draft is not None:
        weights_of_draft, of_draft = draft_bytes(config, draft)
        scratch = draft.num_scratch * of_draft
        block, weights = block + of_draft, weights + weights_of_draft

    def step_bytes() -> int:
        largest = largest_step_shape(budget, config.max_num_seqs)
        largest = replace(largest, embeds=config.enable_prompt_embeds)
        tells = needs_invariant_kernels(config)
        target = _step_bytes(config, model, max_len, largest, batch_invariant=tells, slots=slots)
        if draft is None:
            return target
        abstract, longest = draft.files.abstract, draft.max_model_len
        shape = largest_step_shape(draft.budget, MAX_DRAFT_TOKENS)
        return max(target, _step_bytes(config, abstract, longest, shape, batch_invariant=False))

    overridden = config.num_gpu_blocks_override
    if overridden is None and config.kv_cache_memory_bytes is not None:
        overridden = max(0, config.kv_cache_memory_bytes - scratch) // block
    memory = profile_memory(
        share=config.gpu_memory_utilization,
        weights=weights,
        block=block,
        useful_blocks=useful_blocks(max_len, config.max_num_seqs, config.block_size),
        step_bytes=step_bytes,
        scratch=scratch,
    )
    if overridden is not None:
        memory = replace(memory, num_blocks=overridden)
    try:
        check_longest_sequence_fits(
            memory,
            max_model_len=max_len,
            block_size=config.block_size,
            overridden=overridden is not None,
        )
    except MemoryError:
        if not memory.step:  # the message names the step's memory: measure it only for that
            check_longest_sequence_fits(
                replace(memory, step=step_bytes()),
                max_model_len=max_len,
                block_size=config.block_size,
                overridden=overridden is not None,
            )
        raise
    return memory
