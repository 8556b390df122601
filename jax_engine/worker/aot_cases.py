"""The engine's whole step, compiled ahead of time without allocating weights.

For `python -m pallas_kernels.aot --cases jax_engine.worker.aot_cases`, which `make aot` runs.

A step must update the KV cache in place and read each weight once: no copy of either, and
temporaries no larger than its activations. A layer of a step that decodes starts no more kernels
and copies than the limits below: each takes microseconds, however little it does. The host launches
one CUDA graph for each layer, or one for the whole step (`cudagraph_mode="FULL"`).
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jax_engine.config.engine_config import CudagraphMode
from jax_engine.lora.slot_weights import AdapterSlots
from jax_engine.models.leaves import abstract_leaves, with_formats
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.model_loader import LoadedModel, abstract_decoder
from jax_engine.models.registry import config_from_hf
from jax_engine.operations import coded_format
from jax_engine.weights.codes import Kind
from jax_engine.worker.compiled_steps import CompiledSteps
from jax_engine.worker.kv_cache import kv_cache_shape, scales_shape
from jax_engine.worker.step_shape import StepShape, with_adapters
from pallas_kernels.aot.compiling import Program
from pallas_kernels.aot.hlo import watch
from pallas_kernels.aot.targets import Target
from pallas_kernels.aot.thunks import Starts

# Compiled for every change: a small model's steps and a large one's decode.
QUICK = (
    "step/smollm2-135m/decode-32",
    "step/smollm2-135m/mixed-512",
    "step/llama-3.1-8b/decode-*",
    "step/smollm2-135m-q4_1/decode-32",
    "step/smollm2-135m-kv-fp8/*",
    "step/llama-3.2-1b-one-graph/decode-1",
    "step/smollm2-135m-invariant/*",
    "step/smollm2-135m-adapters/*",
    "step/llama-3.1-8b-adapters/decode-32",
)
QUICK_ROCM = ("step/smollm2-135m/decode-32", "step/llama-3.1-8b/decode-1")
BLOCK_SIZE, NUM_BLOCKS, MAX_MODEL_LEN = 16, 4099, 4096  # a prime: see pallas_kernels.aot.cases
MAX_ROWS = 256
# Kernels and copies that a layer of a step that decodes may start.
LAUNCHES, LAUNCHES_OF_CODES, LAUNCHES_OF_EXPERTS = 16, 25, 33
LAUNCHES_INVARIANT, LAUNCHES_WITH_ADAPTERS, LAUNCHES_OF_ADAPTED_EXPERTS = 17, 27, 54

_LLAMA: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-5}
LLAMA3: dict[str, Any] = _LLAMA | {
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
MODELS = {
    "smollm2-135m": config_from_hf(
        _LLAMA
        | {
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "max_position_embeddings": 8192,
            "rope_theta": 100000.0,
            "tie_word_embeddings": True,
        }
    ),
    "llama-3.2-1b": config_from_hf(
        LLAMA3
        | {
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "tie_word_embeddings": True,
            "rope_parameters": LLAMA3["rope_parameters"] | {"factor": 32.0},
        }
    ),
    "llama-3.1-8b": config_from_hf(
        LLAMA3 | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
    ),
}
MODELS["olmoe-1b-7b"] = config_from_hf(
    {
        "architectures": ["OlmoeForCausalLM"],
        "vocab_size": 50304,
        "hidden_size": 2048,
        "intermediate_size": 1024,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
    }
)
# Every matrix in one kind, the embedding too: GGUF's Q4_1, and AWQ.
QUANTISED = {
    "smollm2-135m-q4_1": ("smollm2-135m", Kind(tuple(map(float, range(16))), 32, minimums=True)),
    "llama-3.1-8b-awq": ("llama-3.1-8b", Kind(tuple(map(float, range(16))), 128, minimums=True)),
}
# A cache of 8 bits, with a scale for each head.
CACHES = {"smollm2-135m-kv-fp8": "float8_e4m3fn", "smollm2-135m-kv-int8": "int8"}
# With each step in one CUDA graph (`cudagraph_mode="FULL"`).
ONE_GRAPH = ("llama-3.2-1b", "llama-3.1-8b", "olmoe-1b-7b")
# With adapters: how many, and their ranks.
ADAPTERS = {"smollm2-135m": (8, 16), "llama-3.1-8b": (8, 16), "olmoe-1b-7b": (8, 16)}
# With `batch_invariant`.
INVARIANT = ("smollm2-135m", "llama-3.2-1b", "llama-3.1-8b")
SHAPES = {
    "decode-1": StepShape(1, 1, decode_only=True),
    "decode-32": StepShape(32, 32, decode_only=True),
    "mixed-512": StepShape(512, 256),
}


def cases(target: Target) -> dict[str, Callable[[], Program]]:
    """The step of each model in each shape, by name; quantised ones where a kernel has products."""
    build = functools.partial(_step, target.platform)
    models: dict[str, tuple[str, Kind | None]] = {name: (name, None) for name in MODELS}
    if "mosaic" in target.backends:
        models |= QUANTISED
    steps: dict[str, Callable[[], Program]] = {
        f"step/{name}/{shape}": functools.partial(build, MODELS[model], SHAPES[shape], kind)
        for name, (model, kind) in models.items()
        for shape in SHAPES
    }
    steps |= {
        f"step/{name}/{shape}": functools.partial(
            build, MODELS["smollm2-135m"], SHAPES[shape], cache_dtype=cache_dtype
        )
        for name, cache_dtype in CACHES.items()
        for shape in SHAPES
    }
    steps |= {
        f"step/{name}-invariant/{shape}": functools.partial(
            build, MODELS[name], SHAPES[shape], batch_invariant=True
        )
        for name in INVARIANT
        for shape in SHAPES
        if "triton" in target.backends and target.platform == "cuda"
    }
    steps |= {
        f"step/{name}-adapters/{shape}": functools.partial(
            build,
            MODELS[name],
            with_adapters(SHAPES[shape]),
            adapters=adapters,
            held="mosaic" in target.backends,
        )
        for name, adapters in ADAPTERS.items()
        for shape in SHAPES
    }
    return steps | {
        f"step/{name}-one-graph/{shape}": functools.partial(
            build, MODELS[name], SHAPES[shape], mode="FULL"
        )
        for name in ONE_GRAPH
        for shape in SHAPES
        if target.platform == "cuda"  # elsewhere "FULL" is "PIECEWISE"
    }


def _step(
    platform: str,
    config: ModelConfig,
    shape: StepShape,
    kind: Kind | None = None,
    cache_dtype: str = "bfloat16",
    mode: CudagraphMode = "PIECEWISE",
    batch_invariant: bool = False,
    adapters: tuple[int, int] | None = None,
    held: bool = True,
) -> Program:
    """The step of one shape.

    Args:
        adapters: how many slots there are, and their ranks.
        held: whether what it starts is held to the limits. XLA's twin starts kernels for each slot.
    """
    dtype = jnp.dtype(jnp.bfloat16)
    graphdef, params = abstract_decoder(config.spec, dtype, batch_invariant)
    numbers = [leaf.shape for leaf in jax.tree.leaves(params)]
    if kind is not None:
        graphdef, params = quantised(config, graphdef, params, kind)
    model = LoadedModel(config, graphdef, params, Path(), 0, 0)
    cache_shape = kv_cache_shape(config, NUM_BLOCKS, BLOCK_SIZE)
    kv_cache = jax.ShapeDtypeStruct(cache_shape, jnp.dtype(cache_dtype))
    slots = None if adapters is None else AdapterSlots(model, *adapters, dtype)
    steps = CompiledSteps(
        model,
        block_size=BLOCK_SIZE,
        table_width=-(-MAX_MODEL_LEN // BLOCK_SIZE),
        max_rows=MAX_ROWS,
        dtype=dtype,
        kv_scales=scales_shape(config, kv_cache.dtype),
        cudagraph_mode=mode,
        batch_invariant=batch_invariant,
        slots=slots,
    )
    function, arguments = steps.function(shape, kv_cache)
    shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
    # Of quantised weights, neither codes may be copied nor their numbers written. Activations of as
    # many tokens as there are groups look like scales.
    weights = numbers + [one for one in shapes if one[-2:-1] != (shape.num_tokens,)]
    weights += [] if slots is None else [one.shape for one in slots.arrays]
    return Program(
        function,
        arguments,
        donated=(1,),
        watched=watch(kv_cache.shape, weights),
        launches=_launches(config, kind, batch_invariant, shape)
        if shape.decode_only and held
        else 2**62,
        starts=_starts(platform, config, mode) if held else None,
        options=steps.options(shape),
    )


def _launches(
    config: ModelConfig, kind: Kind | None, batch_invariant: bool, shape: StepShape
) -> int:
    if shape.lora:
        return LAUNCHES_OF_ADAPTED_EXPERTS if config.spec.experts else LAUNCHES_WITH_ADAPTERS
    if batch_invariant:
        return LAUNCHES_INVARIANT
    if config.spec.experts:
        return LAUNCHES_OF_EXPERTS
    return LAUNCHES if kind is None else LAUNCHES_OF_CODES


def _starts(platform: str, config: ModelConfig, mode: CudagraphMode) -> Starts:
    """What the host may start: a graph for each layer and two around them, or one for all.

    On an AMD GPU XLA puts no product that reads a slice of a stack into a graph, and few kernels
    between two of them, so that the host starts most of a layer piece by piece.
    """
    if platform == "rocm":
        layers = config.spec.num_layers
        return Starts(host=2 + 12 * layers, graphs=2 + 3 * layers, updates=0, kernels=2**62)
    layers = 0 if mode == "FULL" else config.spec.num_layers
    graphs = 1 if mode == "FULL" else layers + 2
    return Starts(host=graphs, graphs=graphs, updates=layers, kernels=2**62)


def quantised(
    config: ModelConfig, graphdef: Any, params: nnx.State, kind: Kind
) -> tuple[Any, nnx.State]:
    """The decoder with the formats that the target has for weights of a kind."""
    formats = {}
    for name, leaf in abstract_leaves(params, config.spec).items():
        if leaf.format is not None:
            one = leaf.matrix if leaf.layers is None else leaf.element((0,))
            rows = [[(kind, one.shape[-2])]]
            chosen = coded_format((kind,), rows, one, leaf.format, ordered=False)
            assert chosen is not None
            formats[name] = chosen
    return with_formats(graphdef, params, formats)
