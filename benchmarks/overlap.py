"""How much of the host's time a step hides behind the device's: steps planned ahead, on and off.

The device is a stub that takes DEVICE_MS for each step, one after another, and needs no CPU, as a
GPU would; so what a step takes beyond that is what the host did not hide. Off and on take turns.
"""

import argparse
import gc
import time
from collections.abc import Iterator
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.engines import MAX_MODEL_LEN, stubbed_engine
from benchmarks.registry import Benchmark, Figures, flag
from jax_engine import LLMEngine, SamplingParams
from jax_engine.worker.step_output import StepOutput

DEVICE_MS = 10.0
STEPS, WARMUP = 60, 5


class TokensAt:
    """Tokens of a step that are there at a given time; reading them waits for it."""

    def __init__(self, tokens: np.ndarray, ready: float) -> None:
        self.tokens, self.ready = tokens, ready

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        time.sleep(max(0.0, self.ready - time.perf_counter()))
        return self.tokens


class SlowSteps:
    """In the compiled steps' place: a queue of steps of `DEVICE_MS` each."""

    def __init__(self) -> None:
        self.free_at = 0.0

    def __call__(self, shape: Any, kv_cache: Any, *plan: Any) -> tuple[Any, Any]:
        self.free_at = max(self.free_at, time.perf_counter()) + DEVICE_MS / 1000
        tokens = TokensAt(np.full(shape.num_rows, 7, np.int32), self.free_at)
        return kv_cache, StepOutput(SimpleNamespace(token_ids=tokens))  # type: ignore[arg-type]


def slow_engine(num_seqs: int, rounds: int, *, ahead: bool) -> LLMEngine:
    """An engine that decodes `num_seqs` requests, past their prompts."""
    engine = stubbed_engine(
        max_num_seqs=num_seqs,
        max_num_batched_tokens=num_seqs * 128 + MAX_MODEL_LEN,
        num_gpu_blocks_override=num_seqs * 64 + 256,
        async_scheduling=ahead,
    )
    engine.worker.steps = SlowSteps()  # type: ignore[assignment]
    params = SamplingParams(max_tokens=rounds * (STEPS + 1) + WARMUP + 9, ignore_eos=True)
    for i in range(num_seqs):
        engine.add_request(str(i), [i, *range(63)], params)
    for _ in range(WARMUP):
        engine.step()
    return engine


def measure(num_seqs: int, rounds: int) -> dict[str, float]:
    """Milliseconds a step beyond the device's, off and on, and the share that on hides."""
    engines = {ahead: slow_engine(num_seqs, rounds, ahead=ahead) for ahead in (False, True)}
    beyond: dict[bool, list[float]] = {False: [], True: []}
    gc.collect()
    for _ in range(rounds):
        for ahead, engine in engines.items():
            engine.step()  # the device may have finished the step ahead in the pause
            started = time.perf_counter()
            for _ in range(STEPS):
                engine.step()
            beyond[ahead].append(1000 * (time.perf_counter() - started) / STEPS - DEVICE_MS)
    off, on = median(beyond[False]), median(beyond[True])
    return {"off_ms": round(off, 3), "on_ms": round(on, 3), "hidden": round(1 - on / off, 3)}


def run(args: argparse.Namespace) -> Iterator[Figures]:
    yield {"device_ms": DEVICE_MS}
    for num_seqs in args.running:
        yield {f"{num_seqs}_running": measure(num_seqs, args.rounds)}


def headline(args: argparse.Namespace, found: Figures) -> dict[str, str]:
    if "256_running" not in found:
        return {}
    return {"host time hidden, 256 running": f"{found['256_running']['hidden']:.0%}"}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--running", type=int, nargs="+", default=[1, 16, 64, 256]),
        flag("--rounds", type=int, default=3),
    ),
    smoke={"running": [2], "rounds": 1},
    headline=headline,
)
