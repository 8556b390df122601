"""What a busy main thread costs the engine, whose thread then waits for the interpreter's lock.

    python -m benchmarks.busy_thread           prints the ratios
    python -m benchmarks.busy_thread --save    and keeps them in benchmarks/results/

Enqueued prompts are decoded while the main thread sleeps, and while it runs Python code all the
time, in turns. Python lets a thread that computes keep the lock for `sys.getswitchinterval()`
seconds when another one wants it.
"""

import argparse
import sys
import time
from statistics import median
from threading import Thread

from benchmarks.report import write_result
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="SmolLM2-135M-Instruct when not given")
    parser.add_argument("--num-prompts", type=int, default=4)
    parser.add_argument("--num-tokens", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    llm = LLM(args.model, max_model_len=512)
    tokens_per_s(llm, args.num_prompts, args.num_tokens, busy=False)  # compiles
    result = {}
    usual = sys.getswitchinterval()
    for interval in INTERVALS_MS:
        sys.setswitchinterval(interval / 1000)
        found = result[f"switch_interval_{interval:g}_ms"] = measure(llm, args)
        print(f"{interval:g} ms: {found}")
    sys.setswitchinterval(usual)
    if args.save:
        write_result("busy_thread", result, arguments=args)


if __name__ == "__main__":
    main()
