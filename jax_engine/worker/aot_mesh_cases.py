"""The engine's whole step on several GPUs of one machine, compiled ahead of time.

For `python -m pallas_kernels.aot --cases jax_engine.worker.aot_mesh_cases`, which `make aot` runs.

The program is the one that `LLM(tensor_parallel_size=n)` compiles on n GPUs: the same function over
the same mesh, with weights and cache cut in the same way (`jax_engine/parallel`). Only the devices
are described, and arguments are shapes. A device must copy neither its share of a weight nor of the
cache, and talk twice a layer, once for the embedding and once for the logits.

A name reads `mesh/<model>-x<devices>[-one-shot]/<step>`: ONE_SHOT adds up over the devices by
Mosaic's kernel in place of XLA's collective.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jax_engine.models.model_config import ModelConfig
from jax_engine.models.model_loader import LoadedModel, abstract_decoder, shapes_on
from jax_engine.models.registry import config_from_hf
from jax_engine.parallel.collectives import sums_by
from jax_engine.parallel.mesh import DeviceMesh
from jax_engine.parallel.partition import with_dealt_experts
from jax_engine.worker.aot_cases import (
    BLOCK_SIZE,
    LLAMA3,
    MAX_MODEL_LEN,
    MAX_ROWS,
    MODELS,
    NUM_BLOCKS,
)
from jax_engine.worker.compiled_steps import CompiledSteps
from jax_engine.worker.kv_cache import kv_cache_shape
from jax_engine.worker.step_shape import StepShape
from pallas_kernels.aot.compiling import Program
from pallas_kernels.aot.hlo import watch
from pallas_kernels.aot.targets import Target

QUICK = (
    "mesh/llama-3.1-8b-x2/decode-64",
    "mesh/llama-3.1-70b-x8-one-shot/decode-64",
)
SIZES = (1, 2, 4, 8)
ONE_SHOT = "-one-shot"
# What a device says in one step beside two exchanges in each layer: embedding and logits.
AROUND_LAYERS = 2

_LLAMA_8B = MODELS["llama-3.1-8b"]
_QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
}
SHARED_MODELS: dict[str, ModelConfig] = {
    "llama-3.1-8b": _LLAMA_8B,
    "llama-3.1-70b": config_from_hf(
        LLAMA3
        | {
            "hidden_size": 8192,
            "intermediate_size": 28672,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
        }
    ),
    "qwen3-30b-a3b": config_from_hf(_QWEN3),
}
# Each device has whole experts, some of them (`enable_expert_parallel=True`).
SHARED_MODELS["qwen3-30b-a3b-dealt"] = dataclasses.replace(
    SHARED_MODELS["qwen3-30b-a3b"], spec=with_dealt_experts(SHARED_MODELS["qwen3-30b-a3b"].spec)
)
STEPS = {
    "decode-1": StepShape(1, 1, decode_only=True),
    "decode-64": StepShape(64, 64, decode_only=True),
    "decode-256": StepShape(256, 256, decode_only=True),
    "prompt-2048": StepShape(2048, 256),
}
# Those whose messages are short.
WITH_KERNEL = ("decode-1", "decode-64")


def cases(target: Target) -> dict[str, Callable[[], Program]]:
    """The steps of each model on each number of devices, by name; none on GPUs before Hopper.

    On one device the 8B alone: what was measured on one is beside it in docs/gpu.md.
    """
    if "mosaic" not in target.backends:
        return {}
    found: dict[str, Callable[[], Program]] = {}
    for name, config in SHARED_MODELS.items():
        for size in SIZES if name == "llama-3.1-8b" else SIZES[1:]:
            for step, shape in STEPS.items():
                build = functools.partial(_step, target, config, shape, size)
                found[f"mesh/{name}-x{size}/{step}"] = build
                if size > 1 and step in WITH_KERNEL:
                    one_shot = functools.partial(build, backend=("mosaic", "xla"))
                    found[f"mesh/{name}-x{size}{ONE_SHOT}/{step}"] = one_shot
    return found


def _step(
    target: Target,
    config: ModelConfig,
    shape: StepShape,
    size: int,
    backend: str | tuple[str, ...] = "xla",
) -> Program:
    """The step of one shape on so many devices, whose sums are added by this backend."""
    dtype = jnp.dtype(jnp.bfloat16)
    model, share = _shared(target, config, size, dtype)
    cache_shape = kv_cache_shape(model.config, NUM_BLOCKS, BLOCK_SIZE)
    kv_cache = jax.ShapeDtypeStruct(cache_shape, dtype)
    steps = CompiledSteps(
        model,
        block_size=BLOCK_SIZE,
        table_width=-(-MAX_MODEL_LEN // BLOCK_SIZE),
        max_rows=MAX_ROWS,
        dtype=dtype,
    )
    function, arguments = steps.function(shape, kv_cache)

    def step(*given: Any) -> Any:
        with sums_by(backend):
            return function(*given)

    cache_of_one = (*cache_shape[:3], cache_shape[3] // size, *cache_shape[4:])
    rows = _rows_of_activations(config, shape)
    weights = [one for one in share if rows.isdisjoint(one[-2:])]
    return Program(
        step,
        arguments,
        donated=(1,),
        watched=watch(cache_of_one, weights),
        options=steps.options(shape),
        placements=steps.placements(shape),
        devices=size,
        exchanges=0 if size == 1 else 2 * config.spec.num_layers + AROUND_LAYERS,
    )


def _rows_of_activations(config: ModelConfig, shape: StepShape) -> set[int]:
    """How many rows activations have: a share of a weight with as many cannot be told apart."""
    chosen = [one.router.top_k for one in config.spec.experts]
    return {shape.num_tokens * times for times in (1, *chosen)}


def _shared(
    target: Target, config: ModelConfig, size: int, dtype: Any
) -> tuple[LoadedModel, list[tuple[int, ...]]]:
    """The model on so many devices of a target, and the shapes of the weights on one of them."""
    if size == 1:
        graphdef, params = abstract_decoder(config.spec, dtype, False)
        model = LoadedModel(config, graphdef, params, Path(), 0, 0)
    else:
        mesh = DeviceMesh(size, config.spec.has_latents, target.devices(size))
        model = shapes_on(mesh, config, dtype)
    shapes = [leaf.shape for leaf in jax.tree.leaves(model.params)]
    return model, [(one[0] // size, *one[1:]) for one in shapes]
