"""KV blocks and the host's memory against the number of requests."""

import gc
import os
from pathlib import Path

from benchmarks.curves.curve import Curve, Series
from benchmarks.engines import stubbed_engine
from jax_engine import SamplingParams

REQUESTS = (64, 256, 1024, 2048, 4096, 8192)
SMOKE = (4, 8, 16)
PROMPT, OUTPUT = 120, 16


def by_requests(smoke: bool) -> Curve:
    """All requests run at once; measured when each has had its first tokens."""
    sizes = SMOKE if smoke else REQUESTS
    lines = {"KV blocks": Series("O(n)"), "KiB of host memory": Series("O(n)")}
    engine = stubbed_engine(
        max_num_seqs=sizes[-1],
        max_num_batched_tokens=sizes[-1] * PROMPT,
        num_gpu_blocks_override=sizes[-1] * 12,
        enable_prefix_caching=False,
    )
    params = SamplingParams(max_tokens=OUTPUT, ignore_eos=True)
    engine.add_request("first", [1] * PROMPT, params)  # what is set up once is not counted
    while engine.has_unfinished_requests():
        engine.step()
    before = _resident_kib()
    added = 0
    for size in sizes:
        for i in range(added, size):
            engine.add_request(str(i), [i, *range(PROMPT - 1)], params)
        added = size
        engine.step()
        blocks = engine.scheduler.block_manager
        lines["KV blocks"].points[size] = blocks.num_used_gpu_blocks
        lines["KiB of host memory"].points[size] = max(1, _resident_kib() - before)
    return Curve(
        "Memory",
        "requests running",
        "KV blocks; KiB",
        f"Prompts of {PROMPT} tokens and the first of their output; blocks of 16 tokens. Host "
        "memory is what the process holds more than before the first request, the model stubbed "
        "out.",
        lines,
    )


def _resident_kib() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024
