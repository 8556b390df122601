"""Compiled steps by shape: each is compiled once, when first needed or ahead of time.

`CompiledSteps` has the step function of one model; slow compilations are logged. `compile_ahead`
compiles every step before the first request comes (`LLM(..., warmup=True)`).
"""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Shaped
from tqdm import tqdm

from jax_engine.config.engine_config import CudagraphMode
from jax_engine.errors import ConfigError
from jax_engine.host_memory import give_back
from jax_engine.layers.batch import make_batch
from jax_engine.lora.slot_weights import AdapterSlots
from jax_engine.models.model_loader import LoadedModel
from jax_engine.operations import exact_products, this_device
from jax_engine.parallel.collectives import in_turn
from jax_engine.parallel.mesh import SHARE, WHOLE, DeviceMesh
from jax_engine.progress_log import LONG_S, compiling
from jax_engine.sampling.sampler import SamplerOutput
from jax_engine.sampling.sampling_inputs import USUAL, SamplerStages, first_rows
from jax_engine.weights.low_rank import sort_rows
from jax_engine.worker.kv_cache import KVCache
from jax_engine.worker.step_output import (
    NUM_TOP,
    SamplerPrograms,
    StepOutput,
    Unsampled,
    pool_states,
    prompt_logprobs,
    sample_needed_rows,
)
from jax_engine.worker.step_plan import (
    PromptEmbeds,
    adapters_of_tokens,
    has_one_query_each,
    packed_length,
    unpack_step,
)
from jax_engine.worker.step_shape import StepShape

logger = logging.getLogger("jax_engine.compile")


class CompiledSteps:
    """The step function of one model, compiled once for each `StepShape` it meets.

    Args:
        table_width: W, the number of blocks of the longest sequence.
        max_rows: M, the most tokens that one step samples; every step's `token_ids` has length M.
        enforce_eager: Run operation by operation without compiling. Slow; for debugging.
        dtype: The dtype of queries; None: the cache's.
        cudagraph_mode: What becomes a CUDA graph on a GPU.
        batch_invariant: As in `make_batch`, for a model that was opened with it.
        slots: The adapters' slots; None if no step has adapters.

    Attributes:
        weights: The model's parameters and the scales of a quantised cache, as bare arrays.
        kv_scales: These scales, [L, kv, K]; None if the cache is not quantised.
        sample: The sampler, for steps that end with the logits.
    """

    weights: list[Array]
    _structure: jax.tree_util.PyTreeDef

    def __init__(
        self,
        model: LoadedModel,
        *,
        block_size: int,
        table_width: int,
        max_rows: int,
        enforce_eager: bool = False,
        dtype: DTypeLike | None = None,
        kv_scales: Any = None,
        cudagraph_mode: CudagraphMode = "PIECEWISE",
        batch_invariant: bool = False,
        slots: AdapterSlots | None = None,
    ) -> None:
        self.slots, self.mesh = slots, model.mesh
        self.dtype, self.cudagraph_mode = dtype, cudagraph_mode
        self.batch_invariant = batch_invariant
        self.set_weights(model, kv_scales)
        self._width, self._stream_dtypes = model.config.spec.width, None
        if not model.config.spec.has_embedding:
            assert dtype is not None, "a stage is told the dtype of activations"
            decoder = nnx.merge(model.graphdef, model.params)
            self._stream_dtypes = decoder.dtypes(jnp.dtype(dtype))
        self.block_size, self.table_width = block_size, table_width
        self.max_rows, self.enforce_eager = max_rows, enforce_eager
        self._compiled: dict[StepShape, Any] = {}
        self.sample = SamplerPrograms(
            max_rows, enforce_eager=enforce_eager, batch_invariant=batch_invariant
        )

    def set_weights(self, model: LoadedModel, kv_scales: Any = None) -> None:
        """Replaces placeholder shapes by weights: steps may be compiled before weights load.

        Args:
            kv_scales: The scales of a quantised cache, [L, kv, K]; None for any other cache.
        """
        # Bare arrays: with flax variables JAX would call flax several hundred times in each step.
        self.kv_scales = kv_scales
        if self.mesh is not None and isinstance(kv_scales, Array):
            kv_scales = jax.device_put(kv_scales, self.mesh.placed(self.mesh.kv_scales))
        arrays = model.graphdef, model.params, kv_scales
        self.weights, self._structure = jax.tree.flatten(arrays)

    def check_alike(self, model: LoadedModel) -> None:
        """Raises ConfigError unless compiled steps can take the weights of this model, too."""
        given = jax.tree.leaves((model.graphdef, model.params, self.kv_scales))
        before, after = ([(one.shape, one.dtype) for one in each] for each in (self.weights, given))
        if before != after:
            raise ConfigError(
                f"the weights of {model.source} have other shapes or formats than those that the "
                "engine was built with: build another engine"
            )

    def __call__(
        self,
        shape: StepShape,
        kv_cache: Shaped[Array, "L kv N K B D"],
        packed: np.ndarray | Int[Array, " P"],
        previous: Int[Array, " M"],
        read: Any = None,
    ) -> tuple[Shaped[Array, "L kv N K B D"], StepOutput]:
        """Starts one step. The cache is donated: the caller must not use it again.

        Args:
            previous: `token_ids` of the previous step, which may still be running.
            read: What the stage before has handed on (`Stream`); zeros take its place where it is
                None, for steps of which only the time counts. In the first stage the `PromptEmbeds`
                of a step that has some.
        """
        if read is None and self._stream_dtypes is not None:
            handed = self.stream(shape.num_tokens)
            read = tuple(np.zeros(one.shape, one.dtype) for one in handed)
        more = () if read is None else (read,)
        if self.mesh is not None:
            packed, previous, *more = self.mesh.everywhere((packed, previous, *more))
        step: Any
        if self.enforce_eager:
            step, packed = self.function(shape, kv_cache)[0], jnp.asarray(packed)
        else:
            step = self._compiled.get(shape) or self.prepare(shape, kv_cache)
        kv_cache, output = step(self._held(shape), kv_cache, packed, previous, *more)
        return kv_cache, output if self.mesh is None else self.mesh.first(output)

    def _held(self, shape: StepShape) -> list[Array]:
        """What a step reads: the weights, and behind them the slots of adapters.

        Without these if the step has no adapters and a branch for them would cost something.
        """
        if self.slots is None or (this_device().branches_wait and not shape.lora):
            return self.weights
        return [*self.weights, *self.slots.arrays]

    def has(self, shape: StepShape) -> bool:
        """Whether a step of this shape can run at once."""
        return self.enforce_eager or shape in self._compiled

    def compiled_shapes(self) -> list[StepShape]:
        """The shapes whose steps are compiled."""
        return list(self._compiled)

    def prepare(self, shape: StepShape, kv_cache: Any) -> Any:
        """Compiles and keeps one shape. Threads may call this at once, each for another shape."""
        with compiling(logger, f"a {shape} (number {len(self._compiled) + 1})"):
            return self.prepare_silently(shape, kv_cache)

    def prepare_silently(self, shape: StepShape, kv_cache: Any) -> Any:
        """`prepare` without its log line, for callers that show a progress bar."""
        step = self._compiled[shape] = self.compile(shape, kv_cache)
        return step

    def compile(self, shape: StepShape, kv_cache: Any) -> Any:
        """The executable for one shape; `kv_cache` may be a `jax.ShapeDtypeStruct`."""
        step, arguments = self.function(shape, kv_cache)
        options = {"compiler_options": self.options(shape)} | self.placements(shape)
        jitted = jax.jit(step, donate_argnums=1, **options)
        compiled = jitted.lower(*arguments).compile()
        give_back()
        return compiled

    def options(self, shape: StepShape) -> dict[str, Any]:
        """XLA's options for the step of one shape."""
        return this_device().step_options(self.cudagraph_mode, decode_only=shape.decode_only)

    def placements(self, shape: StepShape) -> dict[str, Any]:
        """Options of `jax.jit`: where a step's arguments and results lie. None on one device."""
        if self.mesh is None:
            return {}
        results = self.mesh.kv_cache, WHOLE
        return self.mesh.placements(self._arguments(self.mesh, shape), results)

    def function(self, shape: StepShape, kv_cache: Any) -> tuple[Callable[..., Any], Any]:
        """The step of one shape, and its arguments: weights, cache (to donate), plan, previous.

        Of a stage that others precede, also what the one before hands on; of a step with embeddings
        these.
        """
        packed = jax.ShapeDtypeStruct((packed_length(shape, self.table_width),), jnp.int32)
        previous = jax.ShapeDtypeStruct((self.max_rows,), jnp.int32)

        def step(weights: Any, kv_cache: Any, packed: Any, previous: Any, *read: Any) -> Any:
            with exact_products(self.dtype or kv_cache.dtype):
                return self._step(shape, weights, kv_cache, packed, previous, *read)

        if self.mesh is not None:
            results = self.mesh.kv_cache, WHOLE
            step = self.mesh.over(step, self._arguments(self.mesh, shape), results)
        read: Any = self.stream(shape.num_tokens)
        if shape.embeds:
            size = (shape.num_tokens, self._width)
            vectors: Any = jax.ShapeDtypeStruct(size, self.dtype or kv_cache.dtype)
            given: Any = jax.ShapeDtypeStruct(size[:1], jnp.bool)
            read = PromptEmbeds(vectors, given)
        more = () if read is None else (read,)
        return step, (self._held(shape), kv_cache, packed, previous, *more)

    def stream(self, num_tokens: int) -> Any:
        """The shapes of what the stage before hands on (`Stream`); None in the first one."""
        if self._stream_dtypes is None:
            return None
        shape = num_tokens, self._width
        return tuple(jax.ShapeDtypeStruct(shape, one) for one in self._stream_dtypes)

    def _arguments(self, mesh: DeviceMesh, shape: StepShape) -> tuple[Any, ...]:
        """Where the arguments of a step lie that several devices share."""
        weights = [SHARE] * len(self._held(shape))
        if self.kv_scales is not None:  # behind the parameters
            weights[len(self.weights) - 1] = mesh.kv_scales
        return weights, mesh.kv_cache, WHOLE, WHOLE, *[WHOLE] * shape.embeds

    def _step(
        self,
        shape: StepShape,
        weights: list[Array],
        kv_cache: Shaped[Array, "L kv N K B D"],
        packed: Int[Array, " P"],
        previous: Int[Array, " M"],
        *read: Any,
    ) -> tuple[Shaped[Array, "L kv N K B D"], StepOutput]:
        """Runs all layers, which write and read the KV cache, then samples from the last tokens.

        A stage that others follow samples nothing.
        """
        own, slots = weights[: len(self.weights)], weights[len(self.weights) :]
        graphdef, params, kv_scales = jax.tree.unflatten(self._structure, own)
        model = nnx.merge(graphdef, params)
        plan = unpack_step(
            packed,
            previous,
            shape,
            self.table_width,
            self.block_size,
            batch_invariant=self.batch_invariant,
        )
        adapters = None
        if self.slots is not None and slots:
            self.slots.attach(model, slots)
            adapters = sort_rows(adapters_of_tokens(plan), self.slots.count)
        batch = make_batch(
            model.spec.attentions,
            kv_cache,
            plan.block_tables,
            plan.context_lens,
            plan.query_start_loc,
            plan.slot_mapping,
            plan.positions,
            dtype=self.dtype or kv_cache.dtype,
            decode_only=has_one_query_each(shape, batch_invariant=self.batch_invariant),
            kv_scales=kv_scales,
            prompt_lens=plan.prompt_lens,
            batch_invariant=self.batch_invariant,
            adapters=adapters,
        )
        if self._stream_dtypes is None:
            stream = model.first_stream(plan.token_ids, batch, *read)
        else:
            [stream] = read
        stream, kv_cache = model.run_layers(stream, batch, kv_cache)
        if not model.spec.has_head:
            return kv_cache, StepOutput(stream=stream)
        hidden = model.read(stream, batch)

        def logits(rows: int) -> Float[Array, "R V"]:
            index = plan.logits_index[:rows]
            given = [hidden[index], plan.num_samples]
            if adapters is not None and self.slots is not None:
                real = jnp.arange(rows) < plan.num_samples
                slots_of_rows = jnp.where(real, adapters.slot[index], 0)
                given.append(sort_rows(slots_of_rows, self.slots.count))
            found: Array = model.compute_logits(*given)
            return found

        def sampled(rows: int) -> SamplerOutput:
            inputs = first_rows(plan.sampling.unpacked(), rows)
            return self.sample.sample(logits(rows), inputs)

        split = shape.split or self.sample.branches_wait
        needed = None if split else sample_needed_rows(shape, plan.num_samples, sampled)
        unsampled = Unsampled(logits(shape.num_rows), plan.sampling) if split else None
        num_top = model.spec.vocab_size if shape.whole_prompt_logprobs else NUM_TOP
        drawn = jax.tree.leaves((needed, unsampled))[0]
        output = StepOutput(
            sampled=needed,
            unsampled=unsampled,
            prompt=prompt_logprobs(
                model,
                in_turn(hidden, drawn, model.spec.shared_by),
                plan.targets,
                num_top,
                self.batch_invariant,
                adapters,
            )
            if shape.prompt_logprobs
            else None,
            pooled=pool_states(hidden, plan.query_start_loc) if shape.pooling else None,
        )
        return kv_cache, output


THREADS = 2  # one traces, holding Python's lock, while XLA compiles for the other


def compile_ahead(
    steps: CompiledSteps,
    kv_cache: KVCache,
    vocab_size: int,
    shapes: Sequence[StepShape],
    *,
    use_tqdm: bool = True,
    threads: int = THREADS,
) -> int:
    """Compiles the steps of these shapes that are not compiled yet, and the block copies.

    Returns:
        How many steps were missing. Those in the persistent cache are loaded from it.
    """
    started = time.perf_counter()
    missing = [shape for shape in shapes if not steps.has(shape)]
    # The longest first, so that it does not keep one thread busy alone at the end.
    missing.sort(key=lambda shape: (-shape.num_tokens, -shape.num_rows))
    kv_cache.warm_up()
    with (
        ThreadPoolExecutor(threads) as pool,
        tqdm(total=len(missing), desc="Compiling steps", disable=not use_tqdm) as bar,
    ):
        jobs = [pool.submit(steps.prepare_silently, one, kv_cache.array) for one in missing]
        try:
            for job in jobs:
                job.result()
                bar.update(1)
            if missing and this_device().branches_wait:  # none is where nothing is compiled
                sample = steps.sample
                rows, asks = _samplers(shapes)
                list(pool.map(sample.prepare, rows, repeat(vocab_size), asks))
        finally:
            pool.shutdown(cancel_futures=True)
    seconds = time.perf_counter() - started
    if seconds >= LONG_S:
        logger.info("%d steps compiled ahead in %.1f s", len(missing), seconds)
    return len(missing)


def _samplers(shapes: Sequence[StepShape]) -> tuple[list[int], list[SamplerStages]]:
    """Numbers of rows, and what they may ask for."""
    rows = sorted({shape.num_rows for shape in shapes}, reverse=True)
    return [count for count in rows for _ in USUAL], [*USUAL] * len(rows)
