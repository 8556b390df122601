"""What the host does in a decode step: functions by their own time, as cProfile sees them.

The profile makes calls of Python's functions slower, but waits, copies and launches are calls of
compiled code, which it leaves as they are.
"""

import cProfile
import pstats
from pathlib import Path
from typing import Any

from benchmarks.gpu.engine.limits import Card
from benchmarks.gpu.engine.models import Scale
from benchmarks.gpu.engine.requests import SPARE, seconds_a_step, start_decoding
from jax_engine import LLMEngine

MOST = 16  # functions that are told


def host_profile(engine: LLMEngine, scale: Scale, card: Card) -> dict[str, Any]:
    """Milliseconds a step of each function, with one running sequence and with all."""
    del card
    return {f"{count}_running": _at(engine, scale, count) for count in (1, scale.running)}


def _at(engine: LLMEngine, scale: Scale, count: int) -> dict[str, float]:
    names = start_decoding(engine, count, scale.prompt // 4, 2 * scale.steps + SPARE)
    plain = seconds_a_step(engine, scale.steps)
    profile = cProfile.Profile()
    profile.enable()
    profiled = seconds_a_step(engine, scale.steps)
    profile.disable()
    engine.abort_request(names)
    found: Any = pstats.Stats(profile)
    own = {_name(*where): spent for where, (_, _, spent, _, _) in found.stats.items()}
    largest = sorted(own, key=lambda name: -own[name])[:MOST]
    told = {name: round(1e3 * own[name] / scale.steps, 4) for name in largest}
    return {"step_ms": round(1e3 * plain, 3), "profiled_ms": round(1e3 * profiled, 3), **told}


def _name(file: str, line: int, function: str) -> str:
    return function if file == "~" else f"{Path(file).name}:{line} {function}"
