"""Step time on the real model against the context that its sequences have."""

import time
from statistics import median
from typing import Any

from benchmarks.curves.curve import Curve, Series
from benchmarks.engines import (
    SPARE,
    compute_prompts_without_model,
    smollm2_engine,
    write_kv_cache,
)
from jax_engine import LLMEngine, SamplingParams

SEQUENCES = (1, 8)
CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8000)
SMOKE = (16, 32, 64)
ROUNDS, STEPS = 4, 5


def step_time(smoke: bool) -> Curve:
    """Decode steps, and what each costs beyond the shortest context."""
    contexts = SMOKE if smoke else CONTEXTS
    engine = _engine(contexts[-1] + STEPS + SPARE, smoke)
    lines = {}
    for count in SEQUENCES:
        seconds: dict[int, list[float]] = {context: [] for context in contexts}
        for _ in range(1 if smoke else ROUNDS):  # taking turns: the machine's mood is the same
            for context in contexts:
                seconds[context] += _decode(engine, count, context)
        medians = {context: 1e3 * median(found) for context, found in seconds.items()}
        lines[_name(count)] = Series("O(n)", medians)
    for count in SEQUENCES:
        whole = lines[_name(count)].points
        added = {n: cost - whole[contexts[0]] for n, cost in whole.items() if n != contexts[0]}
        lines[f"{_name(count)}, beyond {contexts[0]} tokens"] = Series("O(n)", added)
    return Curve(
        "Decode step against context length",
        "tokens of context",
        "milliseconds",
        "SmolLM2-135M in float32. The prompts' passes are stubbed out; the cache is written "
        "beforehand, since unwritten memory is one shared page of zeros. Medians of "
        f"{ROUNDS * STEPS} steps; the lengths take turns.",
        lines,
    )


def _engine(max_len: int, smoke: bool) -> LLMEngine:
    settings: dict[str, Any] = {
        "max_model_len": max_len,
        "max_num_seqs": SEQUENCES[-1],
        "num_gpu_blocks_override": SEQUENCES[-1] * (max_len // 16 + 2) + 128,
        "max_num_batched_tokens": 2048,
        "enable_prefix_caching": False,
        "async_scheduling": False,  # one step at a time, to be timed
    }
    engine = smollm2_engine(smoke, **settings)
    write_kv_cache(engine)
    return engine


def _name(count: int) -> str:
    return f"{count} sequence" + "s" * (count > 1)


def _decode(engine: LLMEngine, count: int, context: int) -> list[float]:
    """Seconds of decode steps of `count` sequences that have `context` tokens each."""
    params = SamplingParams(temperature=0.0, max_tokens=STEPS + SPARE, ignore_eos=True)
    names = [f"{count}-{context}-{i}" for i in range(count)]
    for name in names:
        engine.add_request(name, {"prompt_token_ids": [5] * context}, params)
    compute_prompts_without_model(engine)
    seconds = []
    for _ in range(STEPS + 1):
        started = time.perf_counter()
        engine.step()
        seconds.append(time.perf_counter() - started)
    engine.abort_request(names)
    return seconds[1:]  # the first may compile
