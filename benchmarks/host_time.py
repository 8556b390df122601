"""Host time of a step with the model stubbed out: all that Python does between two steps.

Every request decodes one token a step, on a pool with room for all. Schedule: the scheduler.
Prepare: the packed plan. Process: tokens back into the scheduler, stop conditions, outputs.
"""

import argparse
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.engines import MAX_MODEL_LEN, stubbed_engine, timed
from benchmarks.registry import Benchmark, Figures, flag
from jax_engine import RequestOutputKind, SamplingParams

STEPS = 300
WARMUP = 20


@dataclass(frozen=True)
class HostTime:
    """Microseconds a step, medians."""

    schedule_us: float
    prepare_us: float
    process_us: float
    total_us: float


def measure(
    num_seqs: int, scheduling: str = "unified", *, stream: bool = False, steps: int = STEPS
) -> HostTime:
    """Times the parts of so many steps of `num_seqs` decodes."""
    engine = stubbed_engine(
        max_num_seqs=num_seqs,
        max_num_batched_tokens=num_seqs * 128 + MAX_MODEL_LEN,
        num_gpu_blocks_override=num_seqs * 64 + 256,
        scheduling=scheduling,
    )
    kind = RequestOutputKind.CUMULATIVE if stream else RequestOutputKind.FINAL_ONLY
    params = SamplingParams(max_tokens=steps + WARMUP + 9, ignore_eos=True, output_kind=kind)
    lengths = np.random.default_rng(0).integers(64, 128, num_seqs).tolist()
    for i, length in enumerate(lengths):
        engine.add_request(str(i), [i, *range(length - 1)], params)
    clock: dict[str, float] = {}
    engine.scheduler.schedule = timed(engine.scheduler.schedule, "schedule", clock)  # type: ignore
    engine.worker.launch = timed(engine.worker.launch, "prepare", clock)  # type: ignore
    rows = []
    gc.collect()
    for _ in range(steps + WARMUP):
        started = time.perf_counter()
        engine.step()
        total = time.perf_counter() - started
        process = total - clock["schedule"] - clock["prepare"]
        rows.append((clock["schedule"], clock["prepare"], process, total))
    columns = zip(*rows[WARMUP:], strict=True)  # the first step is the prefill
    return HostTime(*(round(1e6 * median(column), 1) for column in columns))


def run(args: argparse.Namespace) -> Iterator[Figures]:
    for num_seqs in args.running:
        found = measure(num_seqs, args.scheduling, stream=args.stream, steps=args.steps)
        yield {f"{num_seqs}_running": vars(found)}


def headline(args: argparse.Namespace, found: Figures) -> dict[str, str]:
    if "256_running" not in found:
        return {}
    return {"host time a step, 256 running": f"{found['256_running']['total_us'] / 1000:.2f} ms"}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--scheduling", default="unified", choices=["unified", "sosp"]),
        flag("--stream", action="store_true", help="an output each step, not one at the end"),
        flag("--running", type=int, nargs="+", default=[1, 16, 64, 256, 1024]),
        flag("--steps", type=int, default=STEPS),
    ),
    smoke={"running": [1, 4], "steps": 5},
    headline=headline,
)
