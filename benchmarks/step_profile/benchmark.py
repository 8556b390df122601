"""Where the time of a step goes: the host's parts, the device's, and what the machine could do.

The host's parts are timed without the profiler. The device's come from a trace of JAX's profiler,
in which each instant goes to the part at work (`trace.attribute`).
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax

from benchmarks.engines import smollm2_engine, write_kv_cache
from benchmarks.registry import Benchmark, Figures
from benchmarks.step_profile.bounds import Machine, bound_ms, measure_machine, work
from benchmarks.step_profile.cases import HOST, Case, medians
from benchmarks.step_profile.parts import PARTS, parts_of_instructions
from benchmarks.step_profile.trace import attribute, record
from jax_engine import LLMEngine

CONTEXT = 256  # of each sequence that decodes
ROUNDS, STEPS, TRACED = 4, 4, 2


def cases(engine: LLMEngine, smoke: bool) -> dict[str, Case]:
    if smoke:
        return {
            "decode_2": Case(engine, 2, 32, prefill=False),
            "prefill_32": Case(engine, 1, 32, prefill=True),
        }
    decodes = {f"decode_{n}": Case(engine, n, CONTEXT, prefill=False) for n in (1, 8, 32)}
    return decodes | {"prefill_512": Case(engine, 1, 512, prefill=True)}


def profile(case: Case, machine: Machine) -> dict[str, Any]:
    """Milliseconds of a step, of its parts, and of each part's bound."""
    case.run(2)  # compiles
    hlo = case.engine.worker.steps._compiled[case.steps.shape].as_text()
    names = parts_of_instructions(hlo)
    plain, spent, windows = [], Counter[str](), 0
    for _ in range(ROUNDS):  # taking turns: the machine's mood is the same for both
        plain += case.run(STEPS)[1:]
        found, count = attribute(record(lambda: (case.run(TRACED), None)[1]), names)
        spent.update(found)
        windows += count
    times = medians(plain)
    device = {part: spent[part] / windows / 1e3 for part in PARTS}
    limits = work(case.engine.model_config, case.queries, case.context, case.sequences)
    parts = {
        name: {"ms": times[name], "percent": 100 * times[name] / times["step"]} for name in HOST
    }
    for name, ms in device.items():
        parts[name] = {"ms": ms, "percent": 100 * ms / times["step"]}
        if name in limits:
            parts[name]["bound_ms"] = bound_ms(machine, *limits[name])
    total = sum(part["ms"] for part in parts.values())
    return {
        "step_ms": round(times["step"], 2),
        "sum_of_parts_ms": round(total, 2),
        "sum_of_parts_percent": round(100 * total / times["step"], 1),
        "parts": {n: {k: round(v, 3) for k, v in part.items()} for n, part in parts.items()},
    }


def run(args: argparse.Namespace) -> Iterator[Figures]:
    # A program from the cache may carry the names that it was compiled with, or none.
    jax.config.update("jax_enable_compilation_cache", False)
    settings: dict[str, Any] = {
        "max_model_len": 1024,
        "max_num_seqs": 32,
        "max_num_batched_tokens": 2048,
        "enable_prefix_caching": False,
        "async_scheduling": False,  # one step at a time, to be timed
    }
    settings |= {"num_gpu_blocks_override": 256} if args.smoke else {"dtype": "float32"}
    engine = smollm2_engine(args.smoke, **settings)
    machine = Machine(1e10, 1e11) if args.smoke else measure_machine()
    yield {
        "read_bandwidth_gb_per_s": round(machine.bandwidth / 1e9, 1),
        "matrix_rate_gflop_per_s": round(machine.matrix_rate / 1e9, 1),
    }
    write_kv_cache(engine)
    for name, case in cases(engine, args.smoke).items():
        yield {name: profile(case, machine)}


BENCHMARK = Benchmark(run)
