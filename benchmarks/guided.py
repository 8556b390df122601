"""What a guide costs: the host's time for masks a step, and a step's time with and without one.

Requests with a JSON schema, with a static mask (`allowed_token_ids`) and without any limit take
turns in one process; the ratios are medians over the rounds. The masks are made while the device
runs the model, but a guide needs the last token: no step is planned ahead, and sampling is a
program of its own. A static mask pays for the second only.
"""

import argparse
import time
from collections.abc import Iterator
from statistics import median

from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.tiny import measured_llm
from jax_engine import LLMEngine, SamplingParams, StructuredOutputsParams

BATCHES = (1, 8)
STEPS, WARMUP = 24, 4
PROMPT = "Write a long JSON list of people with their names, ages and hobbies."
# Long enough that no output is complete within the steps that are timed
SCHEMA = {
    "type": "array",
    "minItems": 100,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 30},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "hobbies": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
        },
        "required": ["name", "age", "hobbies"],
        "additionalProperties": False,
    },
}


def kinds(vocab_size: int) -> dict[str, SamplingParams]:
    """A request of each kind; none of them ends by itself."""
    length = {"temperature": 0.0, "max_tokens": STEPS + 2 * WARMUP}
    guide = StructuredOutputsParams(json=SCHEMA)
    return {
        "free": SamplingParams(**length, ignore_eos=True),
        "guided": SamplingParams(**length, structured_outputs=guide),
        "static": SamplingParams(
            **length, ignore_eos=True, allowed_token_ids=list(range(vocab_size // 2))
        ),
    }


def decode(engine: LLMEngine, params: SamplingParams, batch: int) -> tuple[float, float]:
    """Milliseconds of a decode step, and of its masks: the mean of STEPS steps."""
    names = [f"request {i}" for i in range(batch)]
    for i, name in enumerate(names):
        engine.add_request(name, f"{i}. {PROMPT}", params)
    for _ in range(WARMUP):
        engine.step()
    masks, started = engine.stats().guided_seconds, time.perf_counter()
    for _ in range(STEPS):
        engine.step()
    seconds = time.perf_counter() - started
    masks = engine.stats().guided_seconds - masks
    engine.abort_request(names)
    return 1000 * seconds / STEPS, 1000 * masks / STEPS


def measure(engine: LLMEngine, batch: int, rounds: int) -> dict[str, float]:
    """Medians over the rounds; the first round, which compiles, does not count."""
    steps: dict[str, list[float]] = {}
    masks: dict[str, list[float]] = {}
    for _ in range(rounds + 1):
        for name, params in kinds(engine.model_config.vocab_size).items():
            step_ms, mask_ms = decode(engine, params, batch)
            steps.setdefault(name, []).append(step_ms)
            masks.setdefault(name, []).append(mask_ms)
    found: dict[str, float] = {}
    for name in steps:
        found[f"{name}_step_ms"] = round(median(steps[name][1:]), 3)
        if name != "free":
            ratios = [a / b for a, b in zip(steps[name][1:], steps["free"][1:], strict=True)]
            found[f"{name}_mask_ms"] = round(median(masks[name][1:]), 3)
            found[f"{name}_step_ratio"] = round(median(ratios), 3)
    return found


def run(args: argparse.Namespace) -> Iterator[Figures]:
    settings = {"dtype": args.dtype, "max_model_len": 512, "max_num_seqs": max(BATCHES)}
    with measured_llm(args, args.model, **settings) as llm:
        for batch in BATCHES:
            yield {f"batch_{batch}": measure(llm.llm_engine, batch, args.rounds)}


def headline(args: argparse.Namespace, found: Figures) -> dict[str, str]:
    return {
        f"step with a JSON schema over one without, batch {batch}": (
            f"{found[f'batch_{batch}']['guided_step_ratio']:.2f}"
        )
        for batch in BATCHES
    }


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--model", help="SmolLM2-135M-Instruct when not given"),
        flag("--dtype", default="auto"),
        flag("--rounds", type=int, default=5),
    ),
    smoke={"rounds": 1},
    headline=headline,
)
