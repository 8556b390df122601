"""One user at a quiet machine: start-up to the first token, and decoding at batch 1.

Start-up is a fresh process each time: as on a machine's first day, with nothing compiled, neither
the kernels (Numba) nor the steps (JAX); then with the kernels alone; then with what those left. The
model is there already. Decoding is compared with the bound of its weights: the bytes of all weights
over the bandwidth at which all cores together read memory, measured just before and just after.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.machine_limits import read_bandwidth
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.tiny import measured_llm, measured_model
from jax_engine import LLM, SamplingParams

PROMPT = "Once upon a time, there was a little robot who"
CHILD = """
import time
from collections.abc import Iterator
started = time.time()
from jax_engine import LLM, SamplingParams
llm = LLM(**%r)
built = time.time()
llm.generate(%r, SamplingParams(temperature=0.0, max_tokens=1), use_tqdm=False)
print(built - started, time.time() - started)
"""


def start_up(settings: dict[str, Any], *, compile_kernels: bool) -> dict[str, float]:
    """Seconds to a built engine and to the first token: first start, no steps, all compiled.

    Args:
        compile_kernels: Takes a minute. Without it there is no first start.
    """
    figures = {}
    starts = (("first", "first"), ("cold", "steps"), ("warm", "steps"))
    with tempfile.TemporaryDirectory() as folder:
        # The same thresholds as the engine's own cache has.
        environment = os.environ | {
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }
        if compile_kernels:
            environment["NUMBA_CACHE_DIR"] = f"{folder}/kernels"
        for name, steps in starts if compile_kernels else starts[1:]:
            environment["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/{steps}"
            child = [sys.executable, "-c", CHILD % (settings, PROMPT)]
            started = time.perf_counter()
            done = subprocess.run(
                child, env=environment, capture_output=True, text=True, check=True
            )
            process = time.perf_counter() - started
            built, first_token = map(float, done.stdout.split())
            figures |= {
                f"{name}_engine_built_s": round(built, 2),
                f"{name}_first_token_s": round(first_token, 2),
                f"{name}_whole_process_s": round(process, 2),
            }
    return figures


def decode(llm: LLM, num_tokens: int) -> float:
    """Output tokens a second of one request, without its prompt: median of three."""
    speeds = []
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    llm.generate(PROMPT, params, use_tqdm=False)
    for _ in range(3):
        output = llm.generate(PROMPT, params, use_tqdm=False)[0]
        times = output.metrics
        assert times.finished_time is not None and times.first_token_time is not None
        speeds.append((num_tokens - 1) / (times.finished_time - times.first_token_time))
    return median(speeds)


def run(args: argparse.Namespace) -> Iterator[Figures]:
    with measured_model(args, args.model) as settings:
        yield start_up(settings, compile_kernels=not args.smoke)
    with measured_llm(args, args.model, dtype=args.dtype, max_model_len=1024) as llm:
        weights = llm.llm_engine.memory.weights
        before = read_bandwidth()
        speed = decode(llm, args.num_tokens)
        bandwidth = max(before, read_bandwidth())
    bound = bandwidth / weights
    yield {
        "weights_mib": round(weights / 2**20, 1),
        "read_bandwidth_gb_per_s": round(bandwidth / 1e9, 1),
        "decode_bound_tokens_per_s": round(bound, 1),
        "decode_tokens_per_s": round(speed, 1),
        "decode_percent_of_bound": round(100 * speed / bound, 1),
    }


def files(args: argparse.Namespace, found: Figures) -> dict[str, Figures]:
    first = {name: value for name, value in found.items() if name.startswith("first_")}
    others = {name: value for name, value in found.items() if name not in first}
    return ({"first_start": first} if first else {}) | {"single_stream": others}


def headline(args: argparse.Namespace, found: Figures) -> dict[str, str]:
    if "first_first_token_s" in found:
        what = "first token of a machine's first process, nothing compiled"
        return {what: f"{found['first_first_token_s']} s"}
    return {
        "first token of a new process, only kernels compiled": f"{found['cold_first_token_s']} s",
        "first token of a new process, all compiled": f"{found['warm_first_token_s']} s",
        "SmolLM2 decoding at batch 1": f"{found['decode_tokens_per_s']} tokens/s, "
        f"{found['decode_percent_of_bound']:.0f} % of the weights' bandwidth bound",
    }


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--model", help="SmolLM2-135M-Instruct when not given"),
        flag("--dtype", default="auto"),
        flag("--num-tokens", type=int, default=128),
    ),
    smoke={"num_tokens": 4},
    headline=headline,
    files=files,
)
