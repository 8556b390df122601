"""Host time of a step against running sequences, and of accepting and admitting that many."""

import gc
import time
from dataclasses import asdict
from statistics import median

from benchmarks import host_time
from benchmarks.curves.curve import Curve, Series
from benchmarks.engines import MAX_MODEL_LEN, stubbed_engine
from jax_engine import SamplingParams

RUNNING = (1, 4, 16, 64, 256, 1024, 2048)
SMOKE = (1, 4, 16)
ROUNDS = 5


def steps(smoke: bool) -> Curve:
    """Parts of a decode step, by `benchmarks.host_time`."""
    parts = [field.removesuffix("_us") for field in host_time.HostTime.__dataclass_fields__]
    lines = {part: Series("O(n)") for part in parts}
    for running in SMOKE if smoke else RUNNING:
        found = asdict(host_time.measure(running))
        for part in parts:
            lines[part].points[running] = found[f"{part}_us"]
    return Curve(
        "Host time of a decode step",
        "running sequences",
        "microseconds",
        "Every sequence decodes one token; the model is stubbed out. Medians of 300 steps.",
        lines,
    )


def admission(smoke: bool) -> Curve:
    """`add_request` of n short prompts, and the scheduler's step that admits them all."""
    lines = {"add all requests": Series("O(n)"), "schedule the first step": Series("O(n)")}
    for requests in SMOKE if smoke else RUNNING:
        rounds = [_admit(requests) for _ in range(1 if smoke else ROUNDS)]
        for line, seconds in zip(lines.values(), zip(*rounds, strict=True), strict=True):
            line.points[requests] = 1e6 * median(seconds)
    return Curve(
        "Accepting and admitting requests",
        "requests at once",
        "microseconds for all",
        "Prompts of 32 tokens, all of which fit into the first step. The model is stubbed out. "
        f"Medians of {ROUNDS}.",
        lines,
    )


def _admit(requests: int) -> tuple[float, float]:
    """Seconds to accept that many, and to schedule them."""
    engine = stubbed_engine(
        max_num_seqs=requests,
        max_num_batched_tokens=requests * 32 + MAX_MODEL_LEN,
        num_gpu_blocks_override=requests * 4 + 256,
    )
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    gc.collect()
    started = time.perf_counter()
    for i in range(requests):
        engine.add_request(str(i), [i, *range(31)], params)
    added = time.perf_counter()
    engine.scheduler.schedule()
    return added - started, time.perf_counter() - added
