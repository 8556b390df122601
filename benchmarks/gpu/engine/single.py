"""One request at a time: decoding, prompts, and the time to the first token of a lone prompt."""

import time
from statistics import median
from typing import Any

import numpy as np

from benchmarks.gpu.engine.limits import Card, step_work, weight_bytes
from benchmarks.gpu.engine.models import Scale
from benchmarks.gpu.engine.requests import add, finish
from jax_engine import LLMEngine

LONE_PROMPTS = 8  # a round


def decode(engine: LLMEngine, scale: Scale, card: Card) -> dict[str, Any]:
    """Tokens a second of one stream, against the weights' bytes over the read bandwidth."""
    speeds = []
    for i in range(scale.rounds + 1):
        add(engine, f"stream-{i}", scale.prompt // 4, scale.output)
        (output,) = finish(engine)
        times = output.metrics
        assert times.finished_time is not None and times.first_token_time is not None
        speeds.append((scale.output - 1) / (times.finished_time - times.first_token_time))
    speed = median(speeds[1:])
    bound = card.bytes_per_s / weight_bytes(engine.model_config)
    return {
        "tokens_per_s": round(speed, 1),
        "bound_tokens_per_s": round(bound, 1),
        "percent_of_bound": round(100 * speed / bound, 1),
    }


def prefill(engine: LLMEngine, scale: Scale, card: Card) -> dict[str, Any]:
    """Prompts that fill a step each, one after another, against the matrix rate."""
    length = scale.step_tokens
    seconds = []
    for i in range(scale.rounds + 1):
        started = time.perf_counter()
        for j in range(4):
            add(engine, f"prompt-{i}-{j}", length, 1)
        finish(engine)
        seconds.append((time.perf_counter() - started) / 4)
    each = median(seconds[1:])
    flops = step_work(engine.model_config, [(length, length)]).flops
    return {
        "prompt_tokens": length,
        "tokens_per_s": round(length / each, 1),
        "bound_tokens_per_s": round(length * card.flops_per_s / flops, 1),
        "tflop_per_s": round(flops / each / 1e12, 1),
        "percent_of_matrix_rate": round(100 * flops / each / card.flops_per_s, 1),
    }


def first_token(engine: LLMEngine, scale: Scale, card: Card) -> dict[str, Any]:
    """Time to the first token of a prompt that nothing runs beside."""
    times = []
    for i in range((scale.rounds + 1) * LONE_PROMPTS):
        add(engine, f"lone-{i}", scale.prompt, 1)
        (output,) = finish(engine)
        assert output.metrics.first_token_time is not None
        times.append(1e3 * (output.metrics.first_token_time - output.metrics.arrival_time))
    times = times[LONE_PROMPTS:]
    bound = 1e3 * step_work(engine.model_config, [(scale.prompt, scale.prompt)]).seconds(card)
    return {
        "prompt_tokens": scale.prompt,
        "p50_ms": round(float(np.percentile(times, 50)), 2),
        "p99_ms": round(float(np.percentile(times, 99)), 2),
        "bound_ms": round(bound, 2),
        "p50_over_bound": round(float(np.percentile(times, 50)) / bound, 2),
    }
