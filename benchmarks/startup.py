"""Start-up in its parts, and the number of programs.

Each start is a fresh process: one with an empty compilation cache, then several with the cache that
it left, of which the median is shown. Weights load in a thread beside the rest, so parts overlap
and do not add up. Numba's kernels have a cache of their own, which is left as it is found, and so
is Python's bytecode: `imports_bytecode` says whether JAX had any.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from statistics import median
from typing import Any

from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.tiny import measured_model
from jax_engine import EngineConfig
from jax_engine.worker.step_shape import all_step_shapes

FIRST_TOKEN = """
import time
started = time.perf_counter()
import json, os, sys
import jax
figures = {"import_jax_s": time.perf_counter() - started}
import jax_engine.engine.startup.build as build
from jax_engine.models.model_loader import ModelFiles
from jax_engine import LLM, SamplingParams
LLM
figures["import_all_s"] = time.perf_counter() - started

EVENTS = {"jaxpr_trace_duration": "trace_s", "jaxpr_to_mlir_module_duration": "lower_s",
          "backend_compile_duration": "compile_or_load_s"}

def listen(event, seconds, fun_name="", **more):
    name = EVENTS.get(event.rsplit("/", 1)[-1])
    if name and "step" in fun_name and name not in figures:
        figures[name] = seconds

def timed(owner, function, name):
    plain = getattr(owner, function)
    def wrapped(*args, **settings):
        begun = time.perf_counter()
        result = plain(*args, **settings)
        figures[name] = time.perf_counter() - begun
        return result
    setattr(owner, function, wrapped)

jax.monitoring.register_event_duration_secs_listener(listen)
timed(build, "open_model", "open_model_s")
timed(ModelFiles, "load", "load_weights_s")
timed(build, "load_tokenizer", "tokenizer_s")
timed(build, "Worker", "kv_cache_s")
llm = LLM(**json.loads(sys.argv[1]))
figures["engine_built_s"] = time.perf_counter() - started
params = SamplingParams(temperature=0.0, max_tokens=1)
llm.generate("Once upon a time, there was a little robot who", params, use_tqdm=False)
figures["first_token_s"] = time.perf_counter() - started
figures["imports_transformers"] = "transformers" in sys.modules
figures["imports_bytecode"] = os.path.exists(jax.__spec__.cached)
print(json.dumps(figures))
"""


def fresh_process(program: str, argument: str, **environment: str) -> dict[str, Any]:
    """What the program prints last, as JSON."""
    child = [sys.executable, "-c", program, argument]
    done = subprocess.run(
        child, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def first_token(settings: dict[str, Any], repeats: int) -> dict[str, dict[str, Any]]:
    """Parts of a start with an empty cache, and medians of starts with a warm one."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            fresh_process(FIRST_TOKEN, json.dumps(settings), **_cache(folder))
            for _ in range(1 + repeats)
        ]
    cold, warm = runs[0], runs[1:]
    medians = {name: round(median([run[name] for run in warm]), 2) for name in cold}
    return {"cold": {name: round(value, 2) for name, value in cold.items()}, "warm": medians}


def _cache(folder: str) -> dict[str, str]:
    """JAX's cache in that folder, with the thresholds that the engine's own has."""
    return {
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }


def run(args: argparse.Namespace) -> Figures:
    config = EngineConfig()
    shapes = all_step_shapes(config.resolve_lengths(2048)[1], config.max_num_seqs)
    with measured_model(args, args.model) as settings:
        found = first_token({k: v for k, v in settings.items() if v is not None}, args.repeats)
    return {**found, "step_shapes": len(shapes)}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--model", help="SmolLM2-135M-Instruct when not given"),
        flag("--repeats", type=int, default=3, help="starts with a warm cache"),
    ),
    smoke={"repeats": 1},
)
