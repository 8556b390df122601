"""Generates for all prompts at once, in this process, and prints tokens and requests a second.

    jax-engine bench throughput --input-len 64 --output-len 64 --num-prompts 32

The model is --model, or SmolLM2-135M-Instruct. The same requests with other tokens go first, since
steps are compiled when they are first needed.
"""

import argparse
import time
from typing import TYPE_CHECKING

import numpy as np

from jax_engine.commands.bench import datasets
from jax_engine.commands.bench.benchmark_request import BenchmarkRequest
from jax_engine.commands.bench.offline import add_engine, check_output, engine, saved
from jax_engine.outputs import RequestOutput
from jax_engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from jax_engine.llm import LLM


HELP = "of an engine: all prompts at once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags, and the engine's."""
    add_engine(parser)
    datasets.add_arguments(parser, ("random", "sharegpt", "custom"))
    add = parser.add_argument_group("the results").add_argument
    add("--n", type=int, default=1, help="samples of each prompt (%(default)s)")
    add("--output-json", metavar="FILE", help="write the figures to this file")


def run(args: argparse.Namespace) -> int:
    """Measures; returns the exit status."""
    datasets.check(args)
    check_output(args)
    llm = engine(args)
    tokenizer = llm.llm_engine.text_tokenizer()
    asks = datasets.load(args, tokenizer)
    _generate(llm, _others(asks, tokenizer.vocab_size), args.n)
    started = time.perf_counter()
    outputs = _generate(llm, asks, args.n)
    seconds = time.perf_counter() - started
    num_in = sum(len(one.prompt_token_ids or ()) for one in outputs)
    num_out = sum(len(sample.token_ids) for one in outputs for sample in one.outputs)
    print(
        f"Throughput: {len(asks) / seconds:.2f} requests/s, "
        f"{(num_in + num_out) / seconds:.2f} total tokens/s, "
        f"{num_out / seconds:.2f} output tokens/s"
    )
    print(f"Total num prompt tokens:  {num_in}\nTotal num output tokens:  {num_out}")
    saved(
        args,
        {
            "elapsed_time": seconds,
            "num_requests": len(asks),
            "total_num_tokens": num_in + num_out,
            "total_num_output_tokens": num_out,
            "requests_per_second": len(asks) / seconds,
            "tokens_per_second": (num_in + num_out) / seconds,
            "output_tokens_per_second": num_out / seconds,
        },
    )
    return 0


def _others(asks: list[BenchmarkRequest], vocab_size: int) -> list[BenchmarkRequest]:
    """Requests of the same lengths whose prompts have no block in common with these."""
    rng = np.random.default_rng()
    return [
        BenchmarkRequest(
            rng.integers(vocab_size, size=one.num_prompt).tolist(), one.num_prompt, one.output_len
        )
        for one in asks
    ]


def _generate(llm: "LLM", asks: list[BenchmarkRequest], n: int) -> list[RequestOutput]:
    params = [
        SamplingParams(n=n, temperature=1.0, max_tokens=one.output_len, ignore_eos=True)
        for one in asks
    ]
    return llm.generate([one.prompt for one in asks], params)
