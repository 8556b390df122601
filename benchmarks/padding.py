"""How many tokens padding adds to steps with prompts, simulated for each device's buckets.

Requests of ShareGPT's lengths, 256 of which run at all times. Each step computes a token of each
request that decodes, and prompts up to the limit, in chunks.
"""

import argparse
from statistics import mean

import numpy as np

from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.workload import read_lengths
from jax_engine.operations.device import DEVICES
from jax_engine.worker import step_shape

RUNNING, LIMIT, LONGEST = 256, 2048, 4096
SETTLE = 2000  # steps until the first requests have ended


def steps_with_prompts(steps: int) -> list[int]:
    """Tokens of each step that computes prompts, after the first requests have ended."""
    lengths = [pair for pair in read_lengths() if sum(pair) <= LONGEST]
    rng = np.random.default_rng(0)
    running: list[list[int]] = []  # tokens of the prompt, then of the output, still to compute
    found = []
    for number in range(SETTLE + steps):
        while len(running) < RUNNING:
            running.append(list(lengths[rng.integers(len(lengths))]))
        decoding = [one for one in running if not one[0]]
        left = LIMIT - len(decoding)
        for one in running:
            if one[0]:
                chunk = min(one[0], left)
                one[0], left = one[0] - chunk, left - chunk
                one[1] -= chunk > 0 and not one[0]  # its last chunk draws the first token
        for one in decoding:
            one[1] -= 1
        running = [one for one in running if one[0] or one[1] > 0]
        if number >= SETTLE and LIMIT - left > len(decoding):
            found.append(LIMIT - left)
    return found


def padded(tokens: list[int], sizes: tuple[int, ...]) -> float:
    """Mean number of tokens after padding to the smallest of these sizes that fits."""
    return mean(step_shape.bucket(one, sizes) for one in tokens)


def run(args: argparse.Namespace) -> Figures:
    tokens = steps_with_prompts(args.steps)
    found = {"tokens": round(mean(tokens))}
    for device in DEVICES:
        found[f"padded_as_on_a_{device.platform}"] = round(padded(tokens, device.mixed_tokens))
    return found


BENCHMARK = Benchmark(run, flags=(flag("--steps", type=int, default=20_000),), smoke={"steps": 50})
