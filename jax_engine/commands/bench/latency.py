"""Generates for one batch again and again, in this process, and prints how long that takes.

    jax-engine bench latency --input-len 64 --output-len 128 --batch-size 1

The model is --model, or SmolLM2-135M-Instruct. Each pass has new random prompts, so no prefix cache
helps.
"""

import argparse
import time

import numpy as np

from jax_engine.commands.bench.offline import add_engine, check_output, engine, saved
from jax_engine.errors import ConfigError
from jax_engine.sampling_params import SamplingParams

HELP = "of an engine: one batch, again and again"
PERCENTILES = (10, 25, 50, 75, 90, 99)
COUNTS = {
    "input_len": (32, "tokens of each prompt"),
    "output_len": (128, "tokens to generate for each"),
    "batch_size": (8, "prompts at once"),
    "n": (1, "samples of each prompt"),
    "num_iters_warmup": (10, "passes that are not measured"),
    "num_iters": (30, "passes that are measured"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags, and the engine's."""
    add_engine(parser)
    add = parser.add_argument_group("the passes").add_argument
    for name, (default, says) in COUNTS.items():
        flag = f"--{name.replace('_', '-')}"
        add(flag, type=int, default=default, metavar="N", help=f"{says} (%(default)s)")
    add("--use-beam-search", action="store_true", help="n beams in place of samples")
    add("--output-json", metavar="FILE", help="write the figures to this file")


def run(args: argparse.Namespace) -> int:
    """Measures; returns the exit status."""
    for name in COUNTS:
        least = 0 if name == "num_iters_warmup" else 1
        if getattr(args, name) < least:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} must be at least {least}, got {getattr(args, name)}")
    check_output(args)
    llm = engine(args)
    params = SamplingParams(
        n=args.n,
        temperature=0.0 if args.use_beam_search else 1.0,
        use_beam_search=args.use_beam_search,
        max_tokens=args.output_len,
        ignore_eos=True,
    )
    rng = np.random.default_rng(0)
    seconds = []
    for number in range(args.num_iters_warmup + args.num_iters):
        high, shape = llm.llm_engine.text_tokenizer().vocab_size, (args.batch_size, args.input_len)
        prompts = rng.integers(high, size=shape).tolist()
        started = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        if number >= args.num_iters_warmup:
            seconds.append(time.perf_counter() - started)
    percentiles = {str(one): float(np.percentile(seconds, one)) for one in PERCENTILES}
    print(f"Avg latency: {np.mean(seconds)} seconds")
    for one, value in percentiles.items():
        print(f"{one}% percentile latency: {value} seconds")
    found = {"avg_latency": float(np.mean(seconds)), "latencies": seconds}
    saved(args, {**found, "percentiles": percentiles})
    return 0
