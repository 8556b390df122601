"""CPU seconds to compile a step, by the number of layers: the cost must not grow with depth.

No weights are allocated.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp

from benchmarks.registry import Benchmark, Figures, flag
from jax_engine.models.model_loader import LoadedModel, abstract_decoder
from jax_engine.worker.aot_cases import MODELS
from jax_engine.worker.compiled_steps import CompiledSteps
from jax_engine.worker.kv_cache import kv_cache_shape
from jax_engine.worker.step_shape import StepShape

SHAPES = {
    "decode_8": StepShape(8, 8, decode_only=True),
    "mixed_128": StepShape(128, 8),
}
BLOCK_SIZE, NUM_BLOCKS, TABLE_WIDTH = 16, 1024, 128


def seconds(num_layers: int, shape: StepShape) -> float:
    """All threads' time to trace, lower and compile a step of SmolLM2-135M with so many layers."""
    known = MODELS["smollm2-135m"]
    (group,) = known.spec.groups
    spec = replace(known.spec, groups=(replace(group, repeats=num_layers),))
    config = replace(known, spec=spec)
    dtype = jnp.dtype(jnp.float32)
    model = LoadedModel(config, *abstract_decoder(spec, dtype), Path(), 0, 0)
    steps = CompiledSteps(model, block_size=BLOCK_SIZE, table_width=TABLE_WIDTH, max_rows=64)
    cache = jax.ShapeDtypeStruct(kv_cache_shape(config, NUM_BLOCKS, BLOCK_SIZE), dtype)
    started = time.process_time()
    steps.compile(shape, cache)
    return time.process_time() - started


def run(args: argparse.Namespace) -> Iterator[Figures]:
    seconds(2, SHAPES["decode_8"])  # what is done once: imports, kernels for this CPU
    for layers in args.layers:
        yield {
            f"{layers}_layers": {
                f"{name}_cpu_s": round(seconds(layers, shape), 2) for name, shape in SHAPES.items()
            }
        }


BENCHMARK = Benchmark(
    run,
    flags=(flag("--layers", type=int, nargs="+", default=[10, 30, 60]),),
    smoke={"layers": [1, 2]},
)
