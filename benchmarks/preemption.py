"""Swap or recompute (§7.3 and Figure 19 of the paper): what preempting one sequence costs.

    python -m benchmarks.preemption            prints the table
    python -m benchmarks.preemption --save     and keeps it in benchmarks/results/

For each block size one sequence of TOKENS tokens is swapped out, swapped in and recomputed, by the
code that serves requests. All block sizes and all three take turns in one process, so that what
else the machine does falls on each alike; what counts are the ratios, which are of the medians.
"""

import argparse
import gc
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax

from benchmarks.report import write_result
from jax_engine import EngineConfig, LLMEngine, SamplingParams
from jax_engine.worker.memory import useful_blocks

BLOCK_SIZES = (1, 8, 16, 32, 64, 128)
TOKENS = 512
ROUNDS = 7


def build(model: str | None, block_size: int, num_tokens: int) -> LLMEngine:
    """An engine with room for one sequence on the device and on the host."""
    config = EngineConfig(
        model=model,
        skip_tokenizer_init=True,
        block_size=block_size,
        max_model_len=num_tokens + 1,
        max_num_seqs=1,
        max_num_batched_tokens=num_tokens,
        num_gpu_blocks_override=useful_blocks(num_tokens + 1, 1, block_size),
        enable_prefix_caching=False,
        async_scheduling=False,
    )
    return LLMEngine.from_config(config)


def cases(engine: LLMEngine, num_tokens: int) -> dict[str, Callable[[], None]]:
    """Each moves or computes all KV of one sequence, and waits for it."""
    cache, block_size = engine.worker.kv_cache, engine.config.block_size
    pairs = [(block, block) for block in range(-(-num_tokens // block_size))]
    params = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)

    def swap_out() -> None:
        jax.block_until_ready(cache.array)
        cache.swap_out(pairs)

    def swap_in() -> None:
        cache.swap_in(pairs)
        jax.block_until_ready(cache.array)

    def recompute() -> None:
        engine.add_request("one", [5] * num_tokens, params)
        engine.step()
        jax.block_until_ready(cache.array)
        assert not engine.has_unfinished_requests(), "more than one step"

    return {"swap_out": swap_out, "swap_in": swap_in, "recompute": recompute}


def measure(engines: dict[int, LLMEngine], num_tokens: int, rounds: int) -> dict[str, Any]:
    """Milliseconds by block size, medians, and swapping both ways over recomputing."""
    calls = {
        (block_size, name): call
        for block_size, engine in engines.items()
        for name, call in cases(engine, num_tokens).items()
    }
    seconds: dict[tuple[int, str], list[float]] = {key: [] for key in calls}
    gc.collect()
    for i in range(rounds + 1):  # the first compiles
        for key, call in calls.items():
            started = time.perf_counter()
            call()
            if i:
                seconds[key].append(time.perf_counter() - started)
    result = {}
    for block_size in engines:
        found = {
            f"{name}_ms": round(1000 * median(seconds[block_size, name]), 3)
            for name in ("swap_out", "swap_in", "recompute")
        }
        swap = found["swap_out_ms"] + found["swap_in_ms"]
        ratio = round(swap / found["recompute_ms"], 3)
        result[f"block_size_{block_size}"] = found | {"swap_over_recompute": ratio}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="as in LLM(model); SmolLM2-135M-Instruct by default")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of the preempted sequence")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    engines: dict[int, LLMEngine] = {}
    for size in BLOCK_SIZES:
        engines[size] = build(args.model, size, args.tokens)
        # One copy of the weights serves all.
        engines[size].worker.steps.weights = engines[BLOCK_SIZES[0]].worker.steps.weights
    result = measure(engines, args.tokens, args.rounds)
    print(f"  B   swap out   swap in   recompute   ms for {args.tokens} tokens   swap / recompute")
    for size in BLOCK_SIZES:
        out, back, again, ratio = result[f"block_size_{size}"].values()
        print(f"{size:>3} {out:>10.2f} {back:>9.2f} {again:>11.2f} {ratio:>34.3f}")
    if args.save:
        ratio = result["block_size_16"]["swap_over_recompute"]
        headline = {"swap over recompute, B = 16": f"{ratio:.2f}"}
        write_result("preemption", result, arguments=args, headline=headline)


if __name__ == "__main__":
    main()
