"""The engine's speed by how its weights and its KV cache are held, in one run.

SmolLM2-135M-Instruct, activations in bfloat16. Weights: bfloat16, the file's own codes of 4.5 bits,
and W8A8, which rounds activations to 8 bits too. The KV cache: bfloat16, int8, fp8, over weights in
bfloat16. Prompts are random token ids. The engines take turns, in reverse order every second round;
a ratio is taken within a round.
"""

import argparse
from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.compare.quiet import settle
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.report import of_processor
from benchmarks.tiny import measured_model
from jax_engine import LLM, SamplingParams

ENGINES: dict[str, dict[str, Any]] = {
    "bfloat16": {"quantization": "dequantized"},
    "codes": {},
    "w8a8": {"quantization": "w8a8"},
    "kv_int8": {"quantization": "dequantized", "kv_cache_dtype": "int8"},
    "kv_fp8": {"quantization": "dequantized", "kv_cache_dtype": "fp8"},
}


class Work(NamedTuple):
    """Requests of one length, all at once."""

    requests: int
    prompt: int
    output: int

    @property
    def counts_output(self) -> bool:
        """Whether its speed is of output tokens, after the first; else of prompt tokens."""
        return self.output > 1


WORKS = {
    "4 prompts of 512 tokens": Work(4, 512, 1),
    "one request": Work(1, 64, 128),
    "16 requests": Work(16, 64, 48),
    "4 requests after 2,000 tokens each": Work(4, 2000, 64),
}


def speed(llm: LLM, work: Work, turn: int) -> float:
    """Tokens a second: of the prompts, or of the outputs after the first token.

    Where prompts count, each turn has new ones, so that none finds another's prefix. Where outputs
    count, prompts are the same in each turn: the prefix cache has them, and all requests decode at
    once.
    """
    shape, seed = (work.requests, work.prompt), 0 if work.counts_output else 100 + turn
    vocab = llm.llm_engine.model_config.vocab_size
    low, high = min(1000, vocab // 2), min(40_000, vocab)
    tokens = np.random.default_rng(seed).integers(low, high, shape).tolist()
    prompts = [{"prompt_token_ids": ids} for ids in tokens]
    params = SamplingParams(temperature=0.0, max_tokens=work.output, ignore_eos=True)
    settle()
    metrics = [output.metrics for output in llm.generate(prompts, params, use_tqdm=False)]
    ended = max(one.finished_time for one in metrics if one.finished_time is not None)
    if not work.counts_output:
        return work.requests * work.prompt / (ended - min(one.arrival_time for one in metrics))
    first = [one.first_token_time for one in metrics if one.first_token_time is not None]
    return work.requests * (work.output - 1) / (ended - max(first))


def measure(work: Work, llms: dict[str, LLM], runs: int) -> dict[str, Any]:
    """Medians of tokens a second, and of the ratio to weights and cache in bfloat16."""
    found: dict[str, list[float]] = {name: [] for name in llms}
    for turn in range(-1, runs):  # the pass before the first compiles, unmeasured
        for name in list(llms)[:: -1 if turn % 2 else 1]:
            tokens_per_s = speed(llms[name], work, turn)
            if turn >= 0:
                found[name].append(tokens_per_s)
    plain = found["bfloat16"]
    return {
        name: {
            "tokens_per_s": round(median(speeds), 1),
            "over_bfloat16": round(median(a / b for a, b in zip(speeds, plain, strict=True)), 3),
        }
        for name, speeds in found.items()
    }


def run(args: argparse.Namespace) -> Iterator[Figures]:
    llms = {}
    with measured_model(args) as model:
        for name, settings in ENGINES.items():
            if args.smoke and name == "codes":
                continue  # the tiny model has no file
            print(f"loading {name}", flush=True)
            sizes = {"max_model_len": args.longest}
            if args.smoke:
                sizes["max_num_seqs"] = 16
            else:
                sizes["kv_cache_memory_bytes"] = 2**30 if "kv" in name else 2**31
            llms[name] = LLM(dtype="bfloat16", **sizes, **settings, **model)
        for name, work in WORKS.items():
            if work.prompt + work.output <= args.longest:
                yield {name: measure(work, llms, args.runs)}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--runs", type=int, default=3, help="measured passes of each"),
        flag("--longest", type=int, default=2112, help="tokens; longer requests are left out"),
    ),
    smoke={"runs": 1, "longest": 192},
    files=lambda args, found: {of_processor("precision"): found},
)
