"""The host's time of a step with guesses and without, with the model stubbed out.

The stub draws the same token for ever, so each guess is right and each step has as many as it may.
Propose: the drafter looks for guesses. The rest is what `benchmarks.host_time` measures: the plan,
the packed step, the tokens of all guesses back into the sequences. A step with guesses is not
planned ahead, so all of this is time in which a device would wait.
"""

import argparse
import gc
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.engines import stubbed_engine, timed
from benchmarks.registry import Benchmark, Figures, flag
from jax_engine import LLMEngine, RequestOutputKind, SamplingParams

DRAFTERS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "n-gram": {"method": "ngram", "num_speculative_tokens": 7},
    "suffix": {"method": "suffix", "num_speculative_tokens": 7},
}
STEPS, WARMUP, MOST = 120, 10, 8  # the last: tokens of a sequence in a step


def measure(drafter: str, running: int, steps: int = STEPS) -> dict[str, float]:
    """Microseconds of a step, medians; and the tokens that it gives."""
    config = DRAFTERS[drafter]
    if config is not None:
        config = config | {"enable_adaptive_verification": False}
    engine = stubbed_engine(
        max_num_seqs=running,
        max_num_batched_tokens=4096,
        num_gpu_blocks_override=running * 128 + 64,
        speculative_config=config,
    )
    params = SamplingParams(
        max_tokens=(steps + WARMUP + 2) * MOST,
        ignore_eos=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    for i in range(running):
        engine.add_request(str(i), [i + 1, *range(100, 164)], params)
    clock = {"propose": 0.0}
    speculator = engine._pipeline._speculator
    if speculator is not None:
        speculator.propose = timed(speculator.propose, "propose", clock)  # type: ignore
    rows, before = [], 0
    gc.collect()
    for step in range(steps + WARMUP):
        started = time.perf_counter()
        engine.step()
        total = time.perf_counter() - started
        if step == WARMUP - 1:
            before = num_tokens(engine)
        rows.append((clock["propose"], total))
    propose, total = (1e6 * median(column) for column in zip(*rows[WARMUP:], strict=True))
    tokens = num_tokens(engine) - before
    return {
        "propose_us": round(propose, 1),
        "total_us": round(total, 1),
        "tokens_per_step": round(tokens / steps, 2),
        "us_per_token": round(total * steps / tokens, 1),
    }


def num_tokens(engine: LLMEngine) -> int:
    """Tokens of all outputs so far."""
    return sum(seq.output_len for one in engine.scheduler.groups.values() for seq in one.seqs)


def run(args: argparse.Namespace) -> Iterator[Figures]:
    for drafter in DRAFTERS:
        for running in args.running:
            yield {f"{drafter}, {running} running": measure(drafter, running, args.steps)}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--running", type=int, nargs="+", default=[1, 4, 16]),
        flag("--steps", type=int, default=STEPS),
    ),
    smoke={"running": [2], "steps": 6},
)
