"""One model on the card, in a process of its own, whose end gives all of its memory back.

`python -m benchmarks.gpu.engine.child NAME main|options|trace .. --limit SECONDS` prints one JSON
line a measurement: {"part", "figures"} or {"part", "error"}. For `trace` it reads {"requests": ..}
from its standard input, which a peer gets as well.
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.gpu.engine.hidden import host_time_hidden
from benchmarks.gpu.engine.limits import measure_card
from benchmarks.gpu.engine.models import FULL, SMOKE, build
from benchmarks.gpu.engine.options import options_grid
from benchmarks.gpu.engine.parts import profile
from benchmarks.gpu.engine.single import decode, first_token, prefill
from benchmarks.gpu.engine.steady import throughput
from benchmarks.throughput import drive
from benchmarks.workload import Request
from jax_engine import LLMEngine
from jax_engine.worker.step_shape import all_step_shapes
from jax_engine.worker.warmup import compile_ahead

STARTED = time.perf_counter()
# In order of importance.
MAIN = {
    "decode": decode,
    "prefill": prefill,
    "throughput": throughput,
    "first token": first_token,
    "host time hidden": host_time_hidden,
    "profile": profile,
}


def say(part: str, **what: Any) -> None:
    print(json.dumps({"part": part, **what}), flush=True)


def attempt(part: str, run: Callable[[], dict[str, Any] | None], limit_s: float) -> bool:
    """One measurement, unless the time is spent; where it fails, the reason is said."""
    if time.perf_counter() - STARTED > limit_s:
        say(part, error="the time was spent")
        return False
    try:
        figures = run()
    except Exception as error:
        traceback.print_exc()
        lines = str(error).splitlines() or [""]
        say(part, error=f"{type(error).__name__}: {lines[0][:300]}")
        return False
    if figures is not None:
        say(part, figures=figures)
    return True


def main() -> None:
    """The parts named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.engine.child")
    parser.add_argument("model")
    parser.add_argument("parts", nargs="+", choices=["main", "options", "trace"])
    parser.add_argument("--limit", type=float, default=1e9, metavar="SECONDS")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    scale, parts = SMOKE if args.smoke else FULL, args.parts
    card = None
    if "main" in parts:
        card, rates = measure_card(args.smoke)
        say("card", figures=rates)
    engines: list[LLMEngine] = []
    if not attempt("start", lambda: _start(engines, args.model, args.smoke), args.limit):
        return
    (engine,) = engines
    if parts != ["options"]:  # which needs few steps
        attempt("warm-up", lambda: _warm_up(engine), args.limit)
    for part, measure in MAIN.items() if card is not None else ():
        attempt(part, partial(measure, engine, scale, card), args.limit)
    if "options" in parts:
        emit = partial(_say_figures, "options")
        attempt("options", partial(options_grid, engine, scale, args.smoke, emit), args.limit)
    if "trace" in parts:
        attempt("trace", lambda: _trace(engine, json.loads(sys.stdin.readline())), args.limit)


def _say_figures(part: str, figures: dict[str, Any]) -> None:
    say(part, figures=figures)


def _start(engines: list[LLMEngine], model: str, smoke: bool) -> dict[str, Any]:
    """Appends the engine."""
    started = time.perf_counter()
    engines.append(build(model, smoke))
    return _memory(engines[0]) | {"build_s": round(time.perf_counter() - started, 1)}


def _memory(engine: LLMEngine) -> dict[str, Any]:
    memory = engine.memory
    return {
        "weights_gib": round(memory.weights / 2**30, 2),
        "step_gib": round(memory.step / 2**30, 2),
        "kv_cache_gib": round(memory.num_blocks * memory.block / 2**30, 2),
        "kv_blocks": memory.num_blocks,
    }


def _warm_up(engine: LLMEngine) -> dict[str, Any]:
    """Compiles every step; on the many cores beside a GPU more of them at once than the default."""
    started = time.perf_counter()
    limits = engine.scheduler.max_num_batched_tokens, engine.config.max_num_seqs
    threads = max(2, min(8, (os.cpu_count() or 2) // 2))
    count = compile_ahead(engine.worker, all_step_shapes(*limits), use_tqdm=False, threads=threads)
    return {"programs": count, "seconds": round(time.perf_counter() - started, 1)}


def _trace(engine: LLMEngine, message: dict[str, Any]) -> dict[str, Any]:
    """The requests, all at once, after a short pass that is not measured."""
    jobs = message["requests"]
    requests = [Request(one["arrival_s"], one["prompt"], one["output_len"]) for one in jobs]
    short = [Request(0.0, one.prompt_token_ids[::-1], 4) for one in requests]
    drive(engine, short, "warm-up")
    seconds, done = drive(engine, requests, "request")
    out = sum(len(output.outputs[0].token_ids) for _, output in done)
    return {"seconds": round(seconds, 2), "output_tokens_per_s": round(out / seconds, 1)}


if __name__ == "__main__":
    main()
