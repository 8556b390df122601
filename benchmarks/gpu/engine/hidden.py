"""How much of the host's time the device hides: steps planned ahead, on and off, taking turns."""

from statistics import median
from typing import Any

from benchmarks.gpu.engine.limits import Card
from benchmarks.gpu.engine.models import Scale
from benchmarks.gpu.engine.replay import compile_with, decode_step, device_seconds
from benchmarks.gpu.engine.requests import SPARE, seconds_a_step, start_decoding
from jax_engine import LLMEngine


def host_time_hidden(engine: LLMEngine, scale: Scale, card: Card) -> dict[str, Any]:
    """At one and at all running sequences, milliseconds of a step on the device and beyond it."""
    del card
    return {f"{count}_running": _at(engine, scale, count) for count in (1, scale.running)}


def _at(engine: LLMEngine, scale: Scale, count: int) -> dict[str, float]:
    prompt, timed = scale.prompt // 4, 2 * scale.rounds * (scale.steps + 2)
    # Attention takes longer in each step: the device's time is that of the steps in the middle.
    step = decode_step(engine, count, prompt + timed // 2)
    device = 1e3 * device_seconds(engine, step, compile_with(engine, step, {}), scale)
    names = start_decoding(engine, count, prompt, timed + SPARE)
    pipeline = engine._pipeline
    times: dict[bool, list[float]] = {False: [], True: []}
    try:
        for _ in range(scale.rounds):
            for ahead, found in times.items():
                pipeline.look_ahead = ahead
                engine.step()  # the first one after a change is of neither kind
                engine.step()
                found.append(1e3 * seconds_a_step(engine, scale.steps))
    finally:
        pipeline.look_ahead = engine.config.overlaps_steps
        engine.abort_request(names)
    off, on = median(times[False]), median(times[True])
    return {
        "device_ms": round(device, 3),
        "step_off_ms": round(off, 3),
        "step_on_ms": round(on, 3),
        "step_on_over_device": round(on / device, 3),
        "hidden_percent": round(100 * (off - on) / (off - device), 1) if off > device else 100.0,
    }
