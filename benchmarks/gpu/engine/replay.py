"""One step of the engine, kept, and run again and again on the device with nothing in between."""

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.gpu.engine.models import Scale
from benchmarks.gpu.engine.requests import SPARE, add, finish, start_decoding
from jax_engine import LLMEngine
from jax_engine.sampling.sampling_inputs import SamplerStages
from jax_engine.worker.step_shape import StepShape


@dataclass(frozen=True)
class Step:
    """What the worker launched: sizes, the plan and the tokens before it, both on the device."""

    shape: StepShape
    packed: Any
    previous: Any


class _Watched:
    """In the compiled steps' place: the same, and remembers the last one."""

    def __init__(self, steps: Any) -> None:
        self.steps, self.sample, self.last = steps, steps.sample, None

    def __call__(self, shape: StepShape, cache: Any, packed: Any, previous: Any) -> Any:
        self.last = Step(shape, jnp.asarray(packed), previous)
        return self.steps(shape, cache, packed, previous)


def steps(engine: LLMEngine, scale: Scale) -> dict[str, tuple[Step, tuple[int, int, int]]]:
    """One sequence that decodes, all of them, one prompt that fills a step; by name.

    Returns:
        Each with its new tokens a sequence, tokens a sequence in all, sequences.
    """
    context, tokens = scale.prompt // 4 + 1, scale.step_tokens
    found = {"decode of 1": (decode_step(engine, 1, context - 1), (1, context, 1))}
    if not scale.all_steps:
        return found
    many = scale.running
    return found | {
        f"decode of {many}": (decode_step(engine, many, context - 1), (1, context, many)),
        f"prompt of {tokens}": (prefill_step(engine, scale), (tokens, tokens, 1)),
    }


def decode_step(engine: LLMEngine, count: int, prompt: int) -> Step:
    """The step in which so many sequences decode, after prompts of so many tokens."""
    names = start_decoding(engine, count, prompt, SPARE)
    step = _watch(engine, engine.step)
    engine.abort_request(names)
    return step


def prefill_step(engine: LLMEngine, scale: Scale) -> Step:
    """The step that computes one prompt which fills it."""
    add(engine, "prompt", scale.step_tokens, 1)
    return _watch(engine, lambda: finish(engine))


def _watch(engine: LLMEngine, run: Any) -> Step:
    real = engine.worker.steps
    watched = _Watched(real)
    engine.worker.steps = watched  # type: ignore[assignment]
    try:
        run()
    finally:
        engine.worker.steps = real
    assert watched.last is not None
    return watched.last


def compile_with(engine: LLMEngine, step: Step, options: dict[str, Any]) -> Any:
    """The step's program with these options of XLA beside, or in place of, the present ones."""
    if not options:
        return engine.worker.steps._compiled[step.shape]
    function, arguments = engine.worker.steps.function(step.shape, engine.worker.kv_cache.array)
    jitted = jax.jit(
        function,
        donate_argnums=1,
        compiler_options=engine.worker.steps.options(step.shape) | options,
    )
    return jitted.lower(*arguments).compile()


def replay(engine: LLMEngine, step: Step, program: Any, count: int) -> float:
    """Seconds a step. It writes the same slots each time; whose they are must have ended."""
    cache, weights = engine.worker.kv_cache.array, engine.worker.steps.weights
    jax.block_until_ready(cache)
    started = time.perf_counter()
    for _ in range(count):
        cache, output = program(weights, cache, step.packed, step.previous)
        sampled = output.sampled
        if sampled is None:  # the sampler is a program of its own
            sampled = engine.worker.steps.sample(output.unsampled, None, None, SamplerStages())
    jax.block_until_ready(sampled.token_ids)
    seconds = (time.perf_counter() - started) / count
    engine.worker.kv_cache.array = cache
    return seconds


def device_seconds(engine: LLMEngine, step: Step, program: Any, scale: Scale) -> float:
    """Median over rounds of so many steps that one round takes `replay_s`."""
    replay(engine, step, program, 2)
    once = replay(engine, step, program, 3)
    count = max(3, int(scale.replay_s / once))
    return median(replay(engine, step, program, count) for _ in range(scale.rounds))
