"""What a draft model gains by not waiting for the host: `python -m benchmarks.gpu.engine.drafting`.

The model drafts for itself, so each guess should be right, and a step yields k + 1 tokens. Two
engines, one after the other: one that goes on behind steps that the host has not read (`Unread`),
and one that plans each step when the one before is known, and so waits for the host twice a step.
Both must say the same.
"""

import argparse
import gc
from statistics import median
from typing import Any

from benchmarks.gpu.engine.models import FULL, MODELS, SMOKE, Scale, build
from benchmarks.gpu.engine.requests import add, finish
from benchmarks.gpu.said import attempt, put
from jax_engine import LLMEngine

WAYS = {"the device accepts": True, "the host accepts": False}
NUM_GUESSES = 3
BLOCKS = 2048  # enough for one request; two models and the other engine's may be there, too
PART = "draft model"


def main() -> None:
    """Both engines, each in turn."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.engine.drafting")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--limit", type=float, default=1e9, metavar="SECONDS")
    parser.add_argument("--card", default="", help="not read")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, on any device")
    args = parser.parse_args()
    scale, said = SMOKE if args.smoke else FULL, dict[str, list[int]]()
    for way in WAYS:
        attempt(way, lambda way=way: _one(args, scale, way, said), args.limit)
        gc.collect()
    if len(said) == len(WAYS):
        same = len({tuple(tokens) for tokens in said.values()}) == 1
        put("models", args.model, PART, "both say the same", value=same)


def _one(args: argparse.Namespace, scale: Scale, way: str, said: dict[str, list[int]]) -> None:
    engine = build(
        args.model,
        args.smoke,
        num_guesses=NUM_GUESSES,
        most_blocks=BLOCKS,
        async_scheduling=WAYS[way],
    )
    found, said[way] = stream(engine, scale)
    for name, value in found.items():
        put("models", args.model, PART, f"{name}, {way}", value=value)


def stream(engine: LLMEngine, scale: Scale) -> tuple[dict[str, Any], list[int]]:
    """One request at a time: its speed, and what it says the last time."""
    speeds, before, tokens = [], engine.stats(), list[int]()
    for i in range(scale.rounds + 1):
        if i == 1:
            before = engine.stats()  # the first may have compiled
        add(engine, f"stream-{i}", scale.prompt // 4, scale.output)
        (output,) = finish(engine)
        times = output.metrics
        assert times.finished_time is not None and times.first_token_time is not None
        seconds = times.finished_time - times.first_token_time
        speeds.append((scale.output - 1) / seconds)
        tokens = list(output.outputs[0].token_ids)
    steps = engine.stats().num_steps - before.num_steps - scale.rounds  # less those of prompts
    a_step = (scale.output - 1) * scale.rounds / steps
    speed = median(speeds[1:])
    return {
        "tokens_per_s": round(speed, 1),
        "tokens a step": round(a_step, 2),
        "ms a step": round(1e3 * a_step / speed, 3),
    }, tokens


if __name__ == "__main__":
    main()
