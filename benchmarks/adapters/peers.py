"""Eight adapters in one batch beside vLLM's CPU build: `python -m benchmarks.adapters.peers`.

    python -m benchmarks.adapters.peers --save
    python -m benchmarks.adapters.peers --smoke      our engine only, nothing kept

Both engines take the default model's numbers in bfloat16 and the same 32 requests at once, whose
prompts have 16 to 256 tokens. Each has one of eight adapters of rank 16 on every weight of every
layer; then the same requests run without. The engines take turns, paused while the other runs.
"""

import argparse
import json
import signal
import sys
from statistics import median
from typing import Any

import numpy as np

from benchmarks.adapters.files import write_adapters
from benchmarks.compare import checkpoint
from benchmarks.compare.__main__ import Running, settings_for
from benchmarks.compare.environments import OURS, folder
from benchmarks.compare.metrics import figures
from benchmarks.compare.passes import one_pass
from benchmarks.compare.workloads import FIRST_TOKEN, Job
from benchmarks.report import write_result
from jax_engine.models.registry import config_from_hf

ADAPTERS, REQUESTS, OUTPUT = 8, 32, 64
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


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.adapters.peers", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--smoke", action="store_true", help="our engine only, nothing kept")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: no peer is left behind
    model = checkpoint.hf_directory(folder() / "checkpoints")
    hf = json.loads((model / "config.json").read_text("utf-8"))
    config = config_from_hf(hf)
    settings = settings_for(config, model, "bfloat16", smoke=False)
    settings["adapters"] = [str(one) for one in write_adapters(folder() / "adapters", hf, ADAPTERS)]
    names = [OURS] if args.smoke else [OURS, "vllm"]
    running = Running(names, settings)
    try:
        output = 4 if args.smoke else OUTPUT
        result = passes(running, config.vocab_size, output, 1 if args.smoke else args.passes)
        print(json.dumps(result, indent=1))
    finally:
        running.close()
    if args.save and not args.smoke:
        failed = {name: {"failure": why} for name, why in running.failures.items()}
        versions = {name: one.versions for name, one in running.sessions.items()}
        write_result(
            "adapters_peers", result | {"failures": failed, "versions": versions}, arguments=args
        )


if __name__ == "__main__":
    main()
