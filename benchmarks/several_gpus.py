"""What a step takes on 2, 4 and 8 GPUs: compiled without one, and predicted by a roofline.

    python -m benchmarks several_gpus --card h200 --case 'mesh/*/decode-1' --save

A run adds its cases to those that are saved, and predicts all of them anew.
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from benchmarks.compiled_gpu import compile_all, resources
from benchmarks.gpu.engine.limits import Card, card_of
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.report import load_result
from benchmarks.roofline import Exchanges, Link, Row, parts_of_step, predicted_seconds

NAME = "several_gpus"
CASES = "jax_engine.worker.aot_mesh_cases"
CARDS = {"h100": ("gpu/nvidia-h100-80gb-hbm3", "H100"), "h200": ("gpu/nvidia-h200", "H200")}
MODELS = {
    "llama-3.1-8b": "Llama-3.1-8B",
    "llama-3.1-70b": "Llama-3.1-70B",
    "qwen3-30b-a3b-dealt": "Qwen3-30B-A3B",
}
SIZES = (2, 4, 8)
ONE_SHOT = "-one-shot"
CONTEXT = 1024
# The rows of each step that is predicted. On one device they are those of the measurement.
STEPS = {
    "decode-1": [Row(1, CONTEXT)],
    "decode-64": [Row(1, CONTEXT)] * 64,
    "decode-256": [Row(1, CONTEXT)] * 256,
    "prompt-2048": [Row(2048, 2048)],
}
MEASURED = {
    "decode-1": [Row(1, 284)],
    "decode-256": [Row(1, 284)] * 256,
    "prompt-2048": STEPS["prompt-2048"],
}
ASSUMPTIONS: dict[str, Any] = {
    "kernel_us": 2.0,
    "kernel_why": "what a kernel loses at its start and end (docs/gpu.md, before it was measured)",
    "library_exchange_us": [23.0, 33.0],
    "library_exchange_why": "published for XLA's all-reduce of a short message on H100s, not ours",
    "one_shot_exchange_us": 8.0,
    "one_shot_exchange_why": "published for a one-shot all-reduce in Pallas on H100s, not ours",
    "link_bytes_per_s": 450e9,
    "link_why": "what NVLink 4 brings a GPU of 8 in one direction, by its data sheet",
    "memory_share": 0.9,
    "memory_why": "gpu_memory_utilization's default",
    "context_tokens": CONTEXT,
    "context_why": "of each sequence that decodes",
    "experts_why": "each token chooses experts at random, and devices have as many of them",
    "left_out_why": "the host: what it launches in a step is beside the figures",
}


def record(outcome: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a compiled case; bytes are those of one device."""
    said = {kind: {"count": n, "result_bytes": size} for kind, n, size in outcome["collectives"]}
    return resources(outcome) | {
        "weight_bytes": outcome["arguments"] - outcome["aliased"],
        "temporary_bytes": outcome["temporary"],
        "collectives": said,
        "problems": outcome["problems"],
    }


def exchanges_of(compiled: dict[str, Any], size: int, one_shot: bool) -> Exchanges:
    """What a device says in a compiled step: by the kernel, or by XLA's collectives."""
    count = received = 0
    for kind, one in compiled["collectives"].items():
        if (kind == "one-shot kernel") != one_shot:
            continue
        # Of what is gathered a device has its own part. An all-reduce goes around a ring twice.
        times = 2 if kind == "all-reduce" else 1
        count += one["count"]
        received += times * one["result_bytes"] * (size - 1) // size
    return Exchanges(count, received)


def predict(
    spec: Any, size: int, rows: list[Row], card: Card, compiled: dict[str, Any], latency_us: float
) -> dict[str, Any]:
    """A step by the roofline.

    Args:
        compiled: what `record` kept of it.
        latency_us: that of an exchange by XLA's collectives.
    """
    link = ASSUMPTIONS["link_bytes_per_s"]
    exchanges = [exchanges_of(compiled, size, one_shot) for one_shot in (False, True)]
    latencies = latency_us, ASSUMPTIONS["one_shot_exchange_us"]
    seconds = predicted_seconds(
        parts_of_step(spec, size, rows),
        card,
        kernels=compiled["starts"]["kernels"] - sum(one.count for one in exchanges),
        kernel_s=1e-6 * ASSUMPTIONS["kernel_us"],
        exchanges=[
            (said, Link(1e-6 * latency, link))
            for said, latency in zip(exchanges, latencies, strict=True)
        ],
    )
    total = sum(seconds.values())
    tokens = sum(row.new for row in rows)
    parts = {f"{name}_ms": round(1e3 * value, 3) for name, value in seconds.items()}
    return parts | {
        "step_ms": round(1e3 * total, 3),
        "tokens_per_s": round(tokens / total, 1),
    }


def predictions(compiled: dict[str, Any]) -> dict[str, Any]:
    """Each compiled case on each card, by XLA's fast and slow exchanges."""
    found = {}
    for card in CARDS:
        for case in sorted({name.split(" ", 1)[1] for name in compiled}):
            name, step = case.removeprefix("mesh/").split("/")
            model, _, size = name.removesuffix(ONE_SHOT).rpartition("-x")
            given = compiled_case(compiled, card, case)
            spec, rows = spec_of(model), STEPS[step]
            fast, slow = ASSUMPTIONS["library_exchange_us"]
            rates = card_of(load_result(CARDS[card][0])["card"])
            one = {
                words: predict(spec, int(size), rows, rates, given, latency)
                for words, latency in (("fast", fast), ("slow", slow))
            }
            found[f"{card} {case}"] = one | {"compiled_for": given["card"]}
    return found


def compiled_case(compiled: dict[str, Any], card: str, case: str) -> dict[str, Any]:
    """A case as it was compiled for a card; else for the other, which has as many SMs."""
    for one in (card, *CARDS):
        if (found := compiled.get(f"{one} {case}")) is not None:
            return {**found, "card": one}
    raise KeyError(case)


def held_to_measured(compiled: dict[str, Any]) -> dict[str, Any]:
    """The 8B on one H200: what the roofline predicts, and what was measured."""
    saved = load_result(CARDS["h200"][0])
    model = saved["models"]["Llama-3.1-8B"]
    hidden = model["host time hidden"]
    measured = {
        "decode-1": hidden["1_running"]["device_ms"],
        "decode-256": hidden["256_running"]["device_ms"],
        "prompt-2048": 1e3 * 2048 / model["prefill"]["tokens_per_s"],
    }
    found = {}
    for step, rows in MEASURED.items():
        case = f"mesh/llama-3.1-8b-x1/{step}"
        if not any(name.endswith(case) for name in compiled):
            continue
        given = compiled_case(compiled, "h200", case)
        one = predict(spec_of("llama-3.1-8b"), 1, rows, card_of(saved["card"]), given, 0.0)
        ratio = measured[step] / one["step_ms"]
        found[step] = one | {
            "measured_ms": round(measured[step], 3),
            "measured_over_predicted": round(ratio, 2),
        }
    return found


def spec_of(model: str) -> Any:
    """The specification of a model of the cases."""
    from jax_engine.worker.aot_mesh_cases import SHARED_MODELS

    return SHARED_MODELS[model].spec


def finished(args: argparse.Namespace, old: Figures, new: Figures) -> Figures:
    """The compiled cases of both, and all that follows from them."""
    compiled = {**old.get("compiled", {}), **new.get("compiled", {})}
    return {
        "assumptions": ASSUMPTIONS,
        "compiled": dict(sorted(compiled.items())),
        "predicted": predictions(compiled),
        "one_gpu": held_to_measured(compiled),
    }


def run(args: argparse.Namespace) -> Iterator[Figures]:
    for glob in args.case:
        for one in compile_all([glob], module=CASES, targets=[args.card]):
            yield {"compiled": {f"{one['target']} {one['case']}": record(one)}}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--card", choices=list(CARDS), default="h200", help="which one to compile for"),
        flag("--case", action="append", required=True, metavar="GLOB", help="cases to compile"),
    ),
    needs="the compilers of `make aot`",
    files=lambda args, found: {NAME: finished(args, {}, found)},
    merge=finished,
    show=lambda found: json.dumps(list(found["compiled"])),
)
