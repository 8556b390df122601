"""Eight adapters in one batch beside vLLM's CPU build.

Both engines take the default model's numbers in bfloat16 and the same 32 requests at once, whose
prompts have 16 to 256 tokens. Each has one of eight adapters of rank 16 on every weight of every
layer; then the same requests run without. The engines take turns, paused while the other runs.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.adapters.files import write_adapters
from benchmarks.compare import checkpoint
from benchmarks.compare.benchmark import Running, settings_for
from benchmarks.compare.environments import OURS, folder
from benchmarks.compare.metrics import figures
from benchmarks.compare.passes import one_pass
from benchmarks.compare.workloads import FIRST_TOKEN, Job
from benchmarks.registry import Benchmark, Figures, flag, names_of
from jax_engine.models.registry import config_from_hf

ADAPTERS, REQUESTS = 8, 32
SHORTEST, LONGEST = 16, 256


def jobs(vocab_size: int, seed: int, output: int, *, adapted: bool) -> list[Job]:
    """The requests of a pass: lengths are the same in all, tokens are not."""
    lengths = np.random.default_rng(0).integers(SHORTEST, LONGEST + 1, REQUESTS)
    rng = np.random.default_rng(seed)
    return [
        Job(
            rng.integers(FIRST_TOKEN, vocab_size, length).tolist(),
            output,
            adapter=1 + i % ADAPTERS if adapted else 0,
        )
        for i, length in enumerate(lengths)
    ]


def passes(running: Running, vocab_size: int, output: int, count: int) -> dict[str, Any]:
    """Output tokens a second of each engine with adapters and without: medians of passes."""
    speeds: dict[str, dict[bool, list[float]]] = {
        name: {True: [], False: []} for name in running.sessions
    }
    for turn in range(-1, count):  # the first compiles, and reads the adapters
        for adapted in (True, False):
            asked = jobs(vocab_size, turn + 1, output, adapted=adapted)
            for name, session in running.sessions.items():
                answer, _ = one_pass(session, asked)
                figures(asked, answer)  # each token came
                if turn >= 0:
                    speeds[name][adapted].append(REQUESTS * output / answer["seconds"])
    found: dict[str, Any] = {}
    for name, both in speeds.items():
        found[name] = {
            "tokens_per_s": round(median(both[True]), 1),
            "tokens_per_s_without": round(median(both[False]), 1),
        }
        if name != OURS:
            ratios = zip(speeds[OURS][True], both[True], strict=True)
            found[name]["ours_over_this"] = round(median(one / other for one, other in ratios), 2)
    return found


def run(args: argparse.Namespace) -> Iterator[Figures]:
    with tempfile.TemporaryDirectory() as scratch:
        if args.smoke:
            model = checkpoint.tiny_directory(Path(scratch) / "tiny")
        else:
            model = checkpoint.hf_directory(folder() / "checkpoints")
        hf = json.loads((model / "config.json").read_text("utf-8"))
        config = config_from_hf(hf)
        settings = settings_for(config, model, "bfloat16", args.smoke)
        adapters = write_adapters(Path(scratch) / "adapters", hf, ADAPTERS)
        settings["adapters"] = [str(one) for one in adapters]
        running = Running([OURS, *args.peers], settings)
        try:
            yield passes(running, config.vocab_size, args.tokens, args.passes)
        finally:
            running.close()
        yield running.told()


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--peers", type=names_of(["vllm"], 0), default=["vllm"]),
        flag("--passes", type=int, default=5),
        flag("--tokens", type=int, default=64, help="of an answer"),
    ),
    smoke={"peers": [], "passes": 1, "tokens": 4},
)
