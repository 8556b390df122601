"""What a busy main thread costs the engine, whose thread then waits for the interpreter's lock.

Enqueued prompts are decoded while the main thread sleeps, and while it runs Python code all the
time, in turns. Python lets a thread that computes keep the lock for `sys.getswitchinterval()`
seconds when another one wants it.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from statistics import median
from threading import Thread

from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.tiny import measured_llm
from jax_engine import LLM, SamplingParams

PROMPT = "Once upon a time, there was a little robot who"
INTERVALS_MS = (5.0, 0.5)  # Python's own, and a tenth of it


def tokens_per_s(llm: LLM, num_prompts: int, num_tokens: int, *, busy: bool) -> float:
    """Output tokens a second, from `enqueue` until the last request has ended."""
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    ended: list[float] = []

    def wait() -> None:
        llm.wait_for_completion(use_tqdm=False)
        ended.append(time.perf_counter())

    started = time.perf_counter()
    llm.enqueue([PROMPT] * num_prompts, params, use_tqdm=False)
    waiter = Thread(target=wait)
    waiter.start()
    while busy and waiter.is_alive():
        sum(i * i for i in range(1000))
    waiter.join()
    return num_prompts * num_tokens / (ended[0] - started)


def measure(llm: LLM, args: argparse.Namespace) -> dict[str, float]:
    """Medians over alternating pairs, and the median of the pairs' ratios."""
    pairs = []
    for turn in range(args.pairs):
        speeds = {
            busy: tokens_per_s(llm, args.num_prompts, args.num_tokens, busy=busy)
            for busy in ((False, True) if turn % 2 else (True, False))
        }
        pairs.append((speeds[False], speeds[True]))
    return {
        "idle_tokens_per_s": round(median(idle for idle, _ in pairs), 1),
        "busy_tokens_per_s": round(median(busy for _, busy in pairs), 1),
        "busy_to_idle": round(median(busy / idle for idle, busy in pairs), 3),
    }


def run(args: argparse.Namespace) -> Iterator[Figures]:
    usual = sys.getswitchinterval()
    with measured_llm(args, args.model, max_model_len=512) as llm:
        tokens_per_s(llm, args.num_prompts, args.num_tokens, busy=False)  # compiles
        for interval in INTERVALS_MS:
            sys.setswitchinterval(interval / 1000)
            found = measure(llm, args)
            sys.setswitchinterval(usual)
            yield {f"switch_interval_{interval:g}_ms": found}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--model", help="SmolLM2-135M-Instruct when not given"),
        flag("--num-prompts", type=int, default=4),
        flag("--num-tokens", type=int, default=64),
        flag("--pairs", type=int, default=9),
    ),
    smoke={"num_prompts": 1, "num_tokens": 4, "pairs": 1},
)
