"""Ways to make CUDA graphs of a decode step: time on the device, and the host's time to enqueue it.

What ships is `GRAPH_OPTIONS` of `jax_engine/operations/device.py`; the others are fallbacks. The
time to enqueue decides which is best for a small model, whose device waits for the host.
"""

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.gpu.engine.models import Scale
from benchmarks.gpu.engine.replay import Step, compile_with, decode_step, device_seconds
from benchmarks.gpu.said import attempt, put
from jax_engine import LLMEngine
from jax_engine.operations.device import GRAPH_OPTIONS

UPDATES, CACHED = "xla_gpu_command_buffer_update_mode", "xla_cmd_buffer_trace_cache_size"
UNROLLING = "xla_gpu_enable_while_loop_unrolling"
# The first one ships as the default, the second one behind a setting.
VARIANTS: dict[str, dict[str, Any]] = {
    "PIECEWISE": GRAPH_OPTIONS["PIECEWISE"],
    "FULL": GRAPH_OPTIONS["FULL"],
    "FULL, no updates for temporaries": GRAPH_OPTIONS["FULL"] | {UPDATES: "SKIP_TEMP"},
    "layers unrolled": {UNROLLING: "WHILE_LOOP_UNROLLING_FULL_UNROLL"},
    "PIECEWISE, 64 captured products": {CACHED: 64},
    "NONE": GRAPH_OPTIONS["NONE"],
}
SMOKE = ("PIECEWISE", "FULL")
ON_DEVICE, ON_DEVICE_STEPS = "steps on the device", 16
ENQUEUED = 9  # calls whose time to enqueue is measured, one at a time


def measure_graphs(engine: LLMEngine, scale: Scale, smoke: bool, model: str, limit: float) -> None:
    """Says milliseconds of each variant, for one sequence and for all, until the time is spent."""
    counts = (1, scale.running) if scale.all_steps else (1,)
    kept = {f"decode of {n}": decode_step(engine, n, scale.prompt // 4) for n in counts}
    for name in SMOKE if smoke else VARIANTS:
        for case, step in kept.items():
            path = ("models", model, "graphs", case, name)
            run = partial(_one, engine, scale, step, VARIANTS[name], path)
            attempt(", ".join(path[1:]), run, limit)
    for case, step in kept.items():
        path = ("models", model, "graphs", case, ON_DEVICE)
        attempt(", ".join(path[1:]), partial(_on_device, engine, scale, step, path), limit)


def use_variant(engine: LLMEngine, name: str) -> None:
    """Has the engine compile its steps with a variant's options from now on."""
    steps = engine.worker.steps
    shipped: Callable[[Any], dict[str, Any]] = steps.options
    steps.options = lambda shape: shipped(shape) | VARIANTS[name]  # type: ignore[method-assign]


def _one(
    engine: LLMEngine, scale: Scale, step: Step, options: dict[str, Any], path: tuple[str, ...]
) -> None:
    started = time.perf_counter()
    program = compile_with(engine, step, options)
    compiled = time.perf_counter() - started
    each = device_seconds(engine, step, program, scale)
    enqueue = median(_enqueue_seconds(engine, step, program) for _ in range(ENQUEUED))
    found = {"ms": 1e3 * each, "enqueue_ms": 1e3 * enqueue, "compile_s": compiled}
    put(*path, value={key: round(value, 3) for key, value in found.items()})


def _enqueue_seconds(engine: LLMEngine, step: Step, program: Any) -> float:
    """Until the call of the step's program returns, on a device that has nothing to do."""
    cache, weights = engine.worker.kv_cache.array, engine.worker.steps.weights
    jax.block_until_ready(cache)
    started = time.perf_counter()
    cache, output = program(weights, cache, step.packed, step.previous)
    seconds = time.perf_counter() - started
    jax.block_until_ready(cache)
    engine.worker.kv_cache.array = cache
    del output
    return seconds


def _on_device(engine: LLMEngine, scale: Scale, step: Step, path: tuple[str, ...]) -> None:
    """Some steps in one program, each with the greedy tokens of the one before.

    All of them write the same slots, since the plan stays: their time does not depend on it.
    """
    worker = engine.worker
    function, arguments = worker.steps.function(step.shape, worker.kv_cache.array)

    def steps(weights: Any, cache: Any, packed: Any, previous: Any) -> Any:
        def turn(_: Any, carry: Any) -> Any:
            cache, tokens = carry
            cache, output = function(weights, cache, packed, tokens)
            if output.sampled is not None:
                return cache, output.sampled.token_ids
            drawn = jnp.argmax(output.unsampled.logits, -1).astype(tokens.dtype)
            return cache, jnp.pad(drawn, (0, tokens.shape[0] - drawn.shape[0]))

        return lax.fori_loop(0, ON_DEVICE_STEPS, turn, (cache, previous))

    options = worker.steps.options(step.shape)
    program = jax.jit(steps, donate_argnums=1, compiler_options=options)
    compiled = program.lower(*arguments).compile()

    def seconds(count: int) -> float:
        cache, tokens = worker.kv_cache.array, step.previous
        started = time.perf_counter()
        for _ in range(count):
            cache, tokens = compiled(worker.steps.weights, cache, step.packed, tokens)
        jax.block_until_ready(tokens)
        worker.kv_cache.array = cache
        return (time.perf_counter() - started) / count / ON_DEVICE_STEPS

    seconds(1)
    count = max(1, int(scale.replay_s / ON_DEVICE_STEPS / seconds(1)))
    each = median(seconds(count) for _ in range(scale.rounds))
    put(*path, value={"ms": round(1e3 * each, 3), "steps": ON_DEVICE_STEPS})
