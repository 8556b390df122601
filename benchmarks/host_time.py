"""Host time of a step with the model stubbed out: what the controller costs between two steps.

    python -m benchmarks.host_time            prints the table
    python -m benchmarks.host_time --save     and keeps it in benchmarks/results/

Every request decodes one token a step, on a pool with room for all. Sequences cross into a new
block at different steps, as they do in service, except in the column "worst", the slowest step.
"""

import argparse
import random
import time
from dataclasses import dataclass

from benchmarks.report import write_result
from jax_engine import SamplingParams
from jax_engine.core import BlockManager, Scheduler, SchedulerOutput, SequenceGroup

RUNNING = (1, 16, 64, 256, 1024)
BLOCK_SIZE = 16
MAX_MODEL_LEN = 2048
STEPS = 400
WARMUP = 20


@dataclass(frozen=True)
class HostTime:
    """Microseconds a step: medians of the two calls, and the slowest step of all."""

    schedule_us: float
    update_us: float
    total_us: float
    worst_us: float


def build(num_seqs: int, scheduling: str, prefix_caching: bool) -> Scheduler:
    """A scheduler with `num_seqs` single-sequence requests of different lengths waiting."""
    width = MAX_MODEL_LEN // BLOCK_SIZE
    blocks = BlockManager(
        BLOCK_SIZE,
        num_seqs * width * 2,
        enable_prefix_caching=prefix_caching,
        table_width=width,
    )
    scheduler = Scheduler(
        blocks,
        max_num_seqs=num_seqs,
        max_num_batched_tokens=num_seqs * MAX_MODEL_LEN,
        max_model_len=MAX_MODEL_LEN,
        scheduling=scheduling,  # type: ignore[arg-type]
    )
    lengths = random.Random(0)
    params = SamplingParams(max_tokens=STEPS + 2 * WARMUP, ignore_eos=True)
    for i in range(num_seqs):
        prompt = [i, *range(lengths.randrange(64, 128))]
        scheduler.add_group(SequenceGroup(str(i), prompt, params))
    return scheduler


def sampled(output: SchedulerOutput) -> dict[int, list[int]]:
    """What a model would return; not timed."""
    return {item.seq.seq_id: [7] for item in output.scheduled}


def measure(num_seqs: int, scheduling: str = "unified", prefix_caching: bool = True) -> HostTime:
    """Times schedule() and update() over STEPS steps of `num_seqs` decodes."""
    scheduler = build(num_seqs, scheduling, prefix_caching)
    times: list[tuple[float, float]] = []
    for _ in range(STEPS + WARMUP):
        start = time.perf_counter()
        output = scheduler.schedule()
        scheduled = time.perf_counter()
        tokens = sampled(output)
        updating = time.perf_counter()
        scheduler.update(tokens)
        times.append((scheduled - start, time.perf_counter() - updating))
    times = times[WARMUP:]  # the first is the prefill
    totals = [sum(pair) for pair in times]
    figures = [_median([a for a, _ in times]), _median([b for _, b in times])]
    return HostTime(*(round(1e6 * x, 1) for x in (*figures, _median(totals), max(totals))))


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheduling", default="unified", choices=["unified", "sosp"])
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    result = {}
    print(f"{'running':>8}{'schedule':>12}{'update':>12}{'both':>12}{'worst':>12}   microseconds")
    for num_seqs in RUNNING:
        found = measure(num_seqs, args.scheduling, prefix_caching=args.scheduling == "unified")
        row = [found.schedule_us, found.update_us, found.total_us, found.worst_us]
        print(f"{num_seqs:>8}" + "".join(f"{x:>12.1f}" for x in row))
        result[f"{num_seqs}_running"] = vars(found)
    if args.save:
        headline = {
            "schedule and update, 256 running": f"{result['256_running']['total_us']:.0f} µs"
        }
        write_result("host_time", result, arguments=args, headline=headline)


if __name__ == "__main__":
    main()
