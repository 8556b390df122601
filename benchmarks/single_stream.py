"""One user at a quiet machine: start-up to the first token, and decoding at batch 1.

    python -m benchmarks.single_stream --save

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
from statistics import median

from benchmarks.machine_limits import read_bandwidth
from benchmarks.report import write_result
from jax_engine import LLM, SamplingParams

PROMPT = "Once upon a time, there was a little robot who"
FIRST_START = "first token of a machine's first process, nothing compiled"
CHILD = """
import time
started = time.time()
from jax_engine import LLM, SamplingParams
llm = LLM(%r)
built = time.time()
llm.generate(%r, SamplingParams(temperature=0.0, max_tokens=1), use_tqdm=False)
print(built - started, time.time() - started)
"""


def start_up(model: str | None) -> dict[str, float]:
    """Seconds to a built engine and to the first token: first start, no steps, all compiled."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        # The same thresholds as the engine's own cache has.
        environment = os.environ | {
            "NUMBA_CACHE_DIR": f"{folder}/kernels",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }
        for name, steps in (("first", "first"), ("cold", "steps"), ("warm", "steps")):
            environment["JAX_COMPILATION_CACHE_DIR"] = f"{folder}/{steps}"
            child = [sys.executable, "-c", CHILD % (model, PROMPT)]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="SmolLM2-135M-Instruct when not given")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--num-tokens", type=int, default=128)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    result = start_up(args.model)
    llm = LLM(args.model, dtype=args.dtype, max_model_len=1024)
    weights = llm.llm_engine.memory.weights
    before = read_bandwidth()
    speed = decode(llm, args.num_tokens)
    bandwidth = max(before, read_bandwidth())
    bound = bandwidth / weights
    result |= {
        "weights_mib": round(weights / 2**20, 1),
        "read_bandwidth_gb_per_s": round(bandwidth / 1e9, 1),
        "decode_bound_tokens_per_s": round(bound, 1),
        "decode_tokens_per_s": round(speed, 1),
        "decode_percent_of_bound": round(100 * speed / bound, 1),
    }
    for name, value in result.items():
        print(f"{name:>32} {value}")
    if args.save:
        first = {name: result.pop(name) for name in list(result) if name.startswith("first_")}
        headline = {FIRST_START: f"{first['first_first_token_s']} s"}
        write_result("first_start", first, arguments=args, headline=headline)
        headline = {
            "first token of a new process, only kernels compiled": (
                f"{result['cold_first_token_s']} s"
            ),
            "first token of a new process, all compiled": f"{result['warm_first_token_s']} s",
            "SmolLM2 decoding at batch 1": f"{result['decode_tokens_per_s']} tokens/s, "
            f"{result['decode_percent_of_bound']:.0f} % of the weights' bandwidth bound",
        }
        write_result("single_stream", result, arguments=args, headline=headline)


if __name__ == "__main__":
    main()
