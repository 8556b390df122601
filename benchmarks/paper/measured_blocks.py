"""The block size on the real engine: a decode step, and swapping against recomputing."""

import time
from collections.abc import Callable
from statistics import median

from benchmarks.engines import compute_prompts_without_model, smollm2_engine
from benchmarks.paper.figure import Figure, Panel, Row
from jax_engine import LLMEngine, SamplingParams

SIZES = (8, 16, 32, 64, 128)
ROUNDS = 5
SMOLLM = "SmolLM2-135M in float32, on the machine named below."


def figure_18b(smoke: bool) -> Figure:
    """A decode step by block size."""
    context, count = (40, 2) if smoke else (500, 8)
    points = {}
    for size in SIZES[:2] if smoke else SIZES:
        engine = _engine(smoke, size, context + 64, count)
        params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
        for i in range(count):
            engine.add_request(str(i), {"prompt_token_ids": [5] * context}, params)
        compute_prompts_without_model(engine)
        seconds = [_timed(engine.step) for _ in range(4 if smoke else 30)]
        points[float(size)] = 1e3 * median(seconds[2:])
    best = min(points.values())
    rows = [
        Row(f"B = {size:g}: a step over the best", ms / best, "×") for size, ms in points.items()
    ]
    return Figure(
        "Decode step by block size",
        "Figure 18b",
        "measured",
        [SMOLLM, f"{count} sequences with {context} tokens each; medians of 28 steps."],
        rows,
        [Panel("decode step", "block size", "milliseconds", {"step": points})],
        "block sizes from 16 to 128 are best on ShareGPT, 16 and 32 on Alpaca",
    )


def figure_19(smoke: bool) -> Figure:
    """Swapping a sequence out and in, against computing it again, by block size."""
    length = 32 if smoke else 256
    swap, recompute = {}, {}
    for size in SIZES[:2] if smoke else SIZES:
        engine = _engine(smoke, size, 2 * length, 1)
        cache = engine.worker.kv_cache
        pairs = [(block, block) for block in range(-(-length // size))]

        def move(cache=cache, pairs=pairs) -> None:
            cache.swap_out(pairs)
            cache.swap_in(pairs)
            cache.array.block_until_ready()

        def prefill(engine=engine) -> None:
            params = SamplingParams(temperature=0.0, max_tokens=1)
            engine.add_request("0", {"prompt_token_ids": [5] * length}, params)
            while engine.has_unfinished_requests():
                engine.step()

        for points, action in ((swap, move), (recompute, prefill)):
            action()  # compiles
            points[float(size)] = 1e3 * median(_timed(action) for _ in range(ROUNDS))
    worst = max(100 * (recompute[size] / swap[size] - 1) for size in swap)
    rows = [Row("recomputing above swapping, at most", worst, "%")]
    rows += [
        Row(f"B = {size:g}: recomputing over swapping", recompute[size] / swap[size], "×")
        for size in swap
    ]
    return Figure(
        "Recomputing and swapping by block size",
        "Figure 19",
        "measured",
        [
            SMOLLM,
            f"{length} tokens; medians of {ROUNDS}. On a CPU both copies stay in the same memory, "
            "and computing is slow, so swapping wins by far; on a GPU it is another matter.",
        ],
        rows,
        [
            Panel(
                f"{length} tokens",
                "block size",
                "milliseconds",
                {"swap": swap, "recompute": recompute},
            )
        ],
        "recomputing costs the same at every block size, and never more than 20 % above swapping",
    )


def _engine(smoke: bool, block_size: int, max_len: int, count: int) -> LLMEngine:
    return smollm2_engine(
        smoke,
        block_size=block_size,
        max_model_len=max_len,
        max_num_seqs=count,
        num_gpu_blocks_override=count * (-(-max_len // block_size) + 2) + 8,
        enable_prefix_caching=False,
        async_scheduling=False,
        swap_space=1,
    )


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
