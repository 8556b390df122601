"""`python -m benchmarks.gpu.engine.child MODEL PART ...`: one model on the card.

The end of the process gives all of its memory back. With `--codes` its weights are quantised. With
`--graphs` its steps are compiled with one of `graphs.VARIANTS`. For the part `trace` it reads
{"requests": ..} from its standard input, which a peer gets as well.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.gpu.card import rates
from benchmarks.gpu.engine.graphs import VARIANTS, measure_graphs, use_variant
from benchmarks.gpu.engine.hidden import host_time_hidden
from benchmarks.gpu.engine.host_profile import host_profile
from benchmarks.gpu.engine.limits import Card, card_of
from benchmarks.gpu.engine.models import FULL, MODELS, QUANTISED, SMOKE, Scale, build
from benchmarks.gpu.engine.parts import profile
from benchmarks.gpu.engine.single import decode, first_token, prefill
from benchmarks.gpu.engine.steady import throughput
from benchmarks.gpu.plan import best_graphs
from benchmarks.gpu.said import attempt, put
from benchmarks.throughput import drive
from benchmarks.workload import Request
from jax_engine import LLMEngine
from jax_engine.worker.compiled_steps import compile_ahead
from jax_engine.worker.step_shape import StepShape, all_step_shapes, step_shape

PARTS: dict[str, Callable[[LLMEngine, Scale, Card], dict[str, Any]]] = {
    "decode": decode,
    "prefill": prefill,
    "throughput": throughput,
    "first token": first_token,
    "host time hidden": host_time_hidden,
    "host profile": host_profile,
    "profile": profile,
}
GRAPHS, TRACE = "graphs", "trace"


def main() -> None:
    """The parts named on the command line, in their order."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.engine.child")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("parts", nargs="+", choices=[*PARTS, GRAPHS, TRACE])
    parser.add_argument("--codes", choices=QUANTISED, help="weights in codes, not in bfloat16")
    parser.add_argument("--graphs", choices=VARIANTS, default="PIECEWISE")
    parser.add_argument("--limit", type=float, default=1e9, metavar="SECONDS")
    parser.add_argument("--card", default="", help="rates of this card, as JSON")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, on any device")
    args = parser.parse_args()
    scale, name = SMOKE if args.smoke else FULL, f"{args.model} {args.codes or ''}".strip()
    engines: list[LLMEngine] = []
    if not attempt(f"{name}: start", lambda: _start(engines, name, args)):
        sys.exit(1)
    (engine,) = engines
    use_variant(engine, args.graphs)
    measured = [part for part in args.parts if part in PARTS]
    card = card_of(rates(args.card, args.smoke)) if measured else Card(1.0, 1.0)
    for part in args.parts:
        attempt(f"{name}: {part}", partial(_run, part, engine, scale, card, name, args), args.limit)


def _run(
    part: str, engine: LLMEngine, scale: Scale, card: Card, name: str, args: argparse.Namespace
) -> None:
    """Compiles what a part needs, then measures it, so that each part has its figures early."""
    _warm_up(engine, name, part, scale)
    if part == GRAPHS:
        best = best_graphs(measure_graphs(engine, scale, args.smoke, name, args.limit))
        put("models", name, "best graphs", value={"name": best})
        use_variant(engine, best)
        return
    found = _trace(engine) if part == TRACE else PARTS[part](engine, scale, card)
    put("models", name, part, value=found)


def _start(engines: list[LLMEngine], name: str, args: argparse.Namespace) -> None:
    """Appends the engine."""
    started = time.perf_counter()
    engines.append(build(args.model, args.smoke, args.codes))
    spent = {"build_s": round(time.perf_counter() - started, 1), "graphs": args.graphs}
    put("models", name, "start", value=_memory(engines[0]) | spent)


def _memory(engine: LLMEngine) -> dict[str, Any]:
    memory = engine.memory
    return {
        "weights_gib": round(memory.weights / 2**30, 2),
        "step_gib": round(memory.step / 2**30, 2),
        "kv_cache_gib": round(memory.num_blocks * memory.block / 2**30, 2),
        "kv_blocks": memory.num_blocks,
    }


def _warm_up(engine: LLMEngine, name: str, part: str, scale: Scale) -> None:
    """Compiles the steps that a part takes, on many of the cores that stand beside a GPU."""
    started = time.perf_counter()
    shapes = _shapes(engine, part, scale)
    threads = max(2, min(12, (os.cpu_count() or 2) - 2))
    worker: Any = engine.worker
    held = worker.steps, worker.kv_cache, worker.capabilities.vocab_size
    count = compile_ahead(*held, shapes, use_tqdm=False, threads=threads)
    spent = {"programs": count, "seconds": round(time.perf_counter() - started, 1)}
    put("models", name, "warm-up", part, value=spent)


def _shapes(engine: LLMEngine, part: str, scale: Scale) -> list[StepShape]:
    """Those that a part takes; not the few that are met while many requests come in."""
    running = scale.running
    limits = engine.scheduler.max_num_batched_tokens, engine.config.max_num_seqs
    every = [shape for shape in all_step_shapes(*limits) if not shape.decode_only]
    one = [step_shape(1, 1, 1), step_shape(scale.prompt // 4, 1, 1)]
    many = [step_shape(running, running, running), step_shape(scale.step_tokens, running, running)]
    found = {
        "decode": one,
        "first token": [step_shape(scale.prompt, 1, 1)],
        "prefill": [step_shape(scale.step_tokens, 1, 1)],
        "throughput": [*many, *(shape for shape in every if shape.num_rows == running)],
        TRACE: [*many, step_shape(running // 2, running // 2, running // 2), *every],
    }.get(part, [*one, *many])
    return list(dict.fromkeys(found))


def _trace(engine: LLMEngine) -> dict[str, Any]:
    """The requests, all at once, after a short pass that is not measured."""
    jobs = json.loads(sys.stdin.readline())["requests"]
    requests = [Request(one["arrival_s"], one["prompt"], one["output_len"]) for one in jobs]
    short = [Request(0.0, one.prompt_token_ids[::-1], 4) for one in requests]
    drive(engine, short, "warm-up")
    seconds, done = drive(engine, requests, "request")
    out = sum(len(output.outputs[0].token_ids) for _, output in done)
    return {"seconds": round(seconds, 2), "output_tokens_per_s": round(out / seconds, 1)}


if __name__ == "__main__":
    main()
