"""CPU seconds to compile a step, by the number of layers: the cost must not grow with depth.

    python -m benchmarks.compile_time                    prints the table
    python -m benchmarks.compile_time --save             and keeps it

No weights are allocated.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.report import write_result
from jax_engine.models.model_loader import LoadedModel, abstract_decoder
from jax_engine.worker.aot_cases import MODELS
from jax_engine.worker.compiled_steps import CompiledSteps
from jax_engine.worker.kv_cache import kv_cache_shape
from jax_engine.worker.step_shape import StepShape

LAYERS = (10, 30, 60)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    seconds(2, SHAPES["decode_8"])  # what is done once: imports, kernels for this CPU
    result: dict[str, Any] = {}
    print(f"layers   {'   '.join(SHAPES)}   (CPU s)")
    for layers in LAYERS:
        found = {
            f"{name}_cpu_s": round(seconds(layers, shape), 2) for name, shape in SHAPES.items()
        }
        print(f"{layers:>6} {'   '.join(f'{x:>8.2f}' for x in found.values())}", flush=True)
        result[f"{layers}_layers"] = found
    if args.save:
        write_result("compile_time", result, arguments=args)


if __name__ == "__main__":
    main()
