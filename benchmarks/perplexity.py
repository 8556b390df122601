"""Perplexity of models on a fixed text: what quantising costs.

    python -m benchmarks perplexity ./my-model ./my-model-w4a16 ./my-model-gptq

The first model is the one that others are set beside; all must have its tokens. The text is
`benchmarks/data/prose.txt`, a copy of pages of this project's tutorial. It is cut into pieces of
`--length` tokens, and each piece is a prompt of its own whose logprobs the engine gives.
"""

import argparse
import gc
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.registry import Benchmark, Figures, flag, lines, positive
from benchmarks.tiny import measured_model
from jax_engine import LLM, SamplingParams

TEXT = Path(__file__).parent / "data" / "prose.txt"


def negative_logprobs(llm: LLM, pieces: Sequence[list[int]]) -> np.ndarray:
    """One for each token of the pieces but their first ones, in nats."""
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    outputs = llm.generate([{"prompt_token_ids": one} for one in pieces], params, use_tqdm=False)
    found = []
    for piece, output in zip(pieces, outputs, strict=True):
        assert output.prompt_logprobs is not None
        for token, chosen in zip(piece[1:], output.prompt_logprobs[1:], strict=True):
            assert chosen is not None
            found.append(-chosen[token].logprob)
    return np.array(found)


def cut(tokens: list[int], length: int, most: int | None) -> list[list[int]]:
    """Pieces of a length; the rest is dropped, unless it is all there is."""
    whole = range(0, max(len(tokens) - length, 0) + 1, length)
    return [tokens[start : start + length] for start in whole][:most]


def measure(args: argparse.Namespace, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each model, in turn; one is in memory at a time."""
    first: list[list[int]] = []
    base = np.empty(0)
    for model in args.models:
        llm = LLM(
            model,
            dtype=args.dtype,
            max_model_len=args.length + 1,
            max_num_seqs=4,
            tokenizer=args.tokenizer or args.models[0],
            **settings,
        )
        pieces = cut(llm.get_tokenizer().encode(TEXT.read_text("utf-8")), args.length, args.pieces)
        first = first or pieces
        if pieces != first:
            raise SystemExit(f"{model} has other tokens than {args.models[0]}")
        start = time.perf_counter()
        losses = negative_logprobs(llm, pieces)
        seconds = time.perf_counter() - start
        base = losses if not len(base) else base
        yield {
            "model": Path(model).name,
            "tokens": len(losses),
            "perplexity": round(math.exp(losses.mean()), 4),
            "perplexity_above_first_percent": round(
                100 * (math.exp(losses.mean() - base.mean()) - 1), 3
            ),
            "seconds": round(seconds, 1),
        }
        del llm
        gc.collect()


def run(args: argparse.Namespace) -> Iterator[Figures]:
    with measured_model(args) as tiny:
        if args.smoke:
            args.models, settings = [tiny.pop("model")], tiny
        else:
            settings = {}
        if not args.models:
            raise SystemExit("name one model at least, the unquantised one first")
        rows: list[dict[str, Any]] = []
        for one in measure(args, settings):
            rows.append(one)
            yield {"models": list(rows)}


def headline(args: argparse.Namespace, found: Figures) -> dict[str, str]:
    return {f"perplexity of {one['model']}": f"{one['perplexity']}" for one in found["models"]}


def at_least_two(text: str) -> int:
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError(f"must be at least 2, got {text}")
    return value


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("models", nargs="*", metavar="MODEL", help="the unquantised one first"),
        flag("--tokenizer", help="of all (that of the first model)"),
        flag("--dtype", default="float32"),
        flag("--length", type=at_least_two, default=512, help="tokens of a piece"),
        flag("--pieces", type=positive(int), help="how many, at most (all of the text)"),
    ),
    smoke={"length": 32, "pieces": 1},
    headline=headline,
    show=lambda part: lines(part["models"][-1]),
)
