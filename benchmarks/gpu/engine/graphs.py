"""Ways to make CUDA graphs of a decode step: time on the device, and the host's time to enqueue it.

What ships is `GRAPH_OPTIONS` of `jax_engine/operations/device.py`; the others are fallbacks. The
time to enqueue decides which is best for a small model, whose device waits for the host.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
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


def measure_graphs(
    engine: LLMEngine, scale: Scale, smoke: bool, model: str, limit: float
) -> dict[str, dict[str, Any]]:
    """Says milliseconds of each variant, for one sequence and for all, until the time is spent.

    All programs are compiled beside each other first.

    Returns:
        What was said, by case and variant.
    """
    counts = (1, scale.running) if scale.all_steps else (1,)
    kept = {f"decode of {n}": decode_step(engine, n, scale.prompt // 4) for n in counts}
    found: dict[str, dict[str, Any]] = {case: {} for case in kept}
    names = [*(SMOKE if smoke else VARIANTS), ON_DEVICE]
    with ThreadPoolExecutor(max(2, min(12, (os.cpu_count() or 2) - 2))) as pool:
        jobs = {
            (case, name): pool.submit(_compiled, engine, step, name)
            for name in names
            for case, step in kept.items()
        }
        wait(jobs.values())  # what still compiles would slow what is measured
        for (case, name), job in jobs.items():
            path = ("models", model, "graphs", case, name)

            def run(case: str = case, job: Any = job, name: str = name, path: Any = path) -> None:
                measure = _on_device if name == ON_DEVICE else _one
                value = measure(engine, scale, kept[case], job)
                put(*path, value=value)
                found[case][name] = value

            attempt(", ".join(path[1:]), run, limit)
    return found


def _compiled(engine: LLMEngine, step: Step, name: str) -> tuple[Any, float]:
    """A variant's program, and the seconds that it took to compile beside others."""
    started = time.perf_counter()
    if name == ON_DEVICE:
        program = _steps_on_device(engine, step)
    else:
        program = compile_with(engine, step, VARIANTS[name])
    return program, time.perf_counter() - started


def use_variant(engine: LLMEngine, name: str) -> None:
    """Has the engine compile its steps with a variant's options from now on, all of them anew."""
    steps = engine.worker.steps
    steps._compiled.clear()
    shipped: Callable[[Any], dict[str, Any]] = steps.options
    steps.options = lambda shape: shipped(shape) | VARIANTS[name]  # type: ignore[method-assign]


def _one(engine: LLMEngine, scale: Scale, step: Step, job: Future[Any]) -> dict[str, float]:
    program, compiled = job.result()
    each = device_seconds(engine, step, program, scale)
    alone, queued = (
        median(_enqueue_seconds(engine, step, program, before) for _ in range(ENQUEUED))
        for before in (0, 2)
    )
    found = {"ms": 1e3 * each, "enqueue_ms": 1e3 * alone, "queued_ms": 1e3 * queued}
    found["compile_s"] = compiled
    return {key: round(value, 3) for key, value in found.items()}


def _enqueue_seconds(engine: LLMEngine, step: Step, program: Any, before: int) -> float:
    """Until a call of the step's program returns, behind so many others that still run.

    Behind others it gets other temporaries and results, as in the engine: then a graph whose nodes
    hold their addresses is updated before it is launched.
    """
    cache, weights = engine.worker.kv_cache.array, engine.worker.steps.weights
    jax.block_until_ready(cache)
    kept = []
    for _ in range(before + 1):
        packed = jnp.array(step.packed)  # each step of the engine comes with a plan of its own
        started = time.perf_counter()
        cache, output = program(weights, cache, packed, step.previous)
        seconds = time.perf_counter() - started
        kept.append(output)
    jax.block_until_ready(cache)
    engine.worker.kv_cache.array = cache
    return seconds


def _steps_on_device(engine: LLMEngine, step: Step) -> Any:
    """A program of some steps, each with the greedy tokens of the one before.

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
    return program.lower(*arguments).compile()


def _on_device(engine: LLMEngine, scale: Scale, step: Step, job: Future[Any]) -> dict[str, float]:
    program, _ = job.result()
    worker = engine.worker

    def seconds(count: int) -> float:
        cache, tokens = worker.kv_cache.array, step.previous
        started = time.perf_counter()
        for _ in range(count):
            cache, tokens = program(worker.steps.weights, cache, step.packed, tokens)
        jax.block_until_ready(tokens)
        worker.kv_cache.array = cache
        return (time.perf_counter() - started) / count / ON_DEVICE_STEPS

    seconds(1)
    count = max(1, int(scale.replay_s / ON_DEVICE_STEPS / seconds(1)))
    each = median(seconds(count) for _ in range(scale.rounds))
    return {"ms": round(1e3 * each, 3), "steps": ON_DEVICE_STEPS}
