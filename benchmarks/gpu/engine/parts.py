"""What a step is spent on, part by part, beside what the card could do."""

from typing import Any

from benchmarks.gpu.engine.device_trace import ALL_PARTS, by_part
from benchmarks.gpu.engine.limits import Card
from benchmarks.gpu.engine.models import Scale
from benchmarks.gpu.engine.replay import Step, compile_with, device_seconds, replay, steps
from benchmarks.step_profile.bounds import Machine, bound_ms, work
from benchmarks.step_profile.parts import parts_of_instructions
from benchmarks.step_profile.trace import attribute, record_all
from jax_engine import LLMEngine
from jax_engine.operations.device import GRAPH_OPTIONS

REPLAYS = 4


def profile(engine: LLMEngine, scale: Scale, card: Card) -> dict[str, Any]:
    """One decode of one sequence, one of all, and one prompt that fills a step."""
    # `work` counts four bytes a number; bfloat16 has two.
    machine = Machine(2 * card.bytes_per_s, card.flops_per_s)
    found = {}
    for name, (step, sizes) in steps(engine, scale).items():
        limits = {
            part: bound_ms(machine, *needed)
            for part, needed in work(engine.model_config, *sizes).items()
        }
        found[name] = _profile(engine, scale, step, limits)
    return found


def _profile(
    engine: LLMEngine, scale: Scale, step: Step, limits: dict[str, float]
) -> dict[str, Any]:
    """Without command buffers, whose kernels the profiler does not name."""
    shipped = device_seconds(engine, step, compile_with(engine, step, {}), scale)
    program = compile_with(engine, step, GRAPH_OPTIONS["NONE"])
    plain = device_seconds(engine, step, program, scale)
    names = parts_of_instructions(program.as_text())
    # `record_all` forces the trace to disk when this returns, so every kernel is in it.
    events = record_all(lambda: (replay(engine, step, program, REPLAYS), None)[1])
    spent, _ = attribute(by_part(events, names), {part: part for part in ALL_PARTS})
    parts: dict[str, Any] = {}
    for part in ALL_PARTS:
        if spent[part] or part in limits:
            ms = spent[part] / REPLAYS / 1e3
            parts[part] = {"ms": round(ms, 4)}
            if part in limits:
                parts[part]["bound_ms"] = round(limits[part], 4)
    return {
        "device_ms": round(1e3 * shipped, 4),
        "without_command_buffers_ms": round(1e3 * plain, 4),
        "parts": parts,
    }
