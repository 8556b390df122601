"""Host time of a step with the model stubbed out: all that Python does between two steps.

    python -m benchmarks.host_time            prints the table
    python -m benchmarks.host_time --save     and keeps it in benchmarks/results/

Every request decodes one token a step, on a pool with room for all. Schedule: the scheduler.
Prepare: the packed plan. Process: tokens back into the scheduler, stop conditions, outputs.
"""

import argparse
import gc
import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.engines import MAX_MODEL_LEN, stubbed_engine, timed
from benchmarks.report import write_result
from jax_engine import RequestOutputKind, SamplingParams

RUNNING = (1, 16, 64, 256, 1024)
STEPS = 300
WARMUP = 20


@dataclass(frozen=True)
class HostTime:
    """Microseconds a step, medians."""

    schedule_us: float
    prepare_us: float
    process_us: float
    total_us: float


def measure(num_seqs: int, scheduling: str = "unified", *, stream: bool = False) -> HostTime:
    """Times the parts of STEPS steps of `num_seqs` decodes."""
    engine = stubbed_engine(
        max_num_seqs=num_seqs,
        max_num_batched_tokens=num_seqs * 128 + MAX_MODEL_LEN,
        num_gpu_blocks_override=num_seqs * 64 + 256,
        scheduling=scheduling,
    )
    kind = RequestOutputKind.CUMULATIVE if stream else RequestOutputKind.FINAL_ONLY
    params = SamplingParams(max_tokens=STEPS + WARMUP + 9, ignore_eos=True, output_kind=kind)
    lengths = np.random.default_rng(0).integers(64, 128, num_seqs).tolist()
    for i, length in enumerate(lengths):
        engine.add_request(str(i), [i, *range(length - 1)], params)
    clock: dict[str, float] = {}
    engine.scheduler.schedule = timed(engine.scheduler.schedule, "schedule", clock)  # type: ignore
    engine.worker.launch = timed(engine.worker.launch, "prepare", clock)  # type: ignore
    rows = []
    gc.collect()
    for _ in range(STEPS + WARMUP):
        started = time.perf_counter()
        engine.step()
        total = time.perf_counter() - started
        process = total - clock["schedule"] - clock["prepare"]
        rows.append((clock["schedule"], clock["prepare"], process, total))
    columns = zip(*rows[WARMUP:], strict=True)  # the first step is the prefill
    return HostTime(*(round(1e6 * median(column), 1) for column in columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheduling", default="unified", choices=["unified", "sosp"])
    parser.add_argument("--stream", action="store_true", help="an output each step, not one at end")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    result = {}
    print("running    schedule     prepare     process       total   microseconds a step")
    for num_seqs in RUNNING:
        found = vars(measure(num_seqs, args.scheduling, stream=args.stream))
        print(f"{num_seqs:>7}" + "".join(f"{x:>12.1f}" for x in found.values()))
        result[f"{num_seqs}_running"] = found
    if args.save:
        total = result["256_running"]["total_us"] / 1000
        headline = {"host time a step, 256 running": f"{total:.2f} ms"}
        write_result("host_time", result, arguments=args, headline=headline)


if __name__ == "__main__":
    main()
