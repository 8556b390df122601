"""Perplexity of models on a fixed text: what quantising costs.

    python -m benchmarks.perplexity ./my-model ./my-model-w4a16 ./my-model-gptq

The first model is the one that others are set beside; all must have its tokens. The text is
`benchmarks/data/prose.txt`, a copy of pages of this project's tutorial. It is cut into pieces of
`--length` tokens, and each piece is a prompt of its own whose logprobs the engine gives.
"""

import argparse
import gc
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import write_result
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


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each model, in turn; one is in memory at a time."""
    rows: list[dict[str, Any]] = []
    first: list[list[int]] = []
    base = np.empty(0)
    for model in args.models:
        llm = LLM(
            model,
            dtype=args.dtype,
            max_model_len=args.length + 1,
            max_num_seqs=4,
            tokenizer=args.tokenizer or args.models[0],
        )
        pieces = cut(llm.get_tokenizer().encode(TEXT.read_text("utf-8")), args.length, args.pieces)
        first = first or pieces
        if pieces != first:
            raise SystemExit(f"{model} has other tokens than {args.models[0]}")
        start = time.perf_counter()
        losses = negative_logprobs(llm, pieces)
        seconds = time.perf_counter() - start
        base = losses if not len(base) else base
        rows.append(
            {
                "model": Path(model).name,
                "tokens": len(losses),
                "perplexity": round(math.exp(losses.mean()), 4),
                "perplexity_above_first_percent": round(
                    100 * (math.exp(losses.mean() - base.mean()) - 1), 3
                ),
                "seconds": round(seconds, 1),
            }
        )
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
        del llm
        gc.collect()
    return rows


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.perplexity", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help="the unquantised one first")
    parser.add_argument("--tokenizer", help="of all (that of the first model)")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--length", type=int, default=512, help="tokens of a piece")
    parser.add_argument("--pieces", type=int, help="how many, at most (all of the text)")
    parser.add_argument("--output", type=Path, help="JSON (benchmarks/results/perplexity.json)")
    args = parser.parse_args()
    if args.length < 2 or (args.pieces is not None and args.pieces < 1):
        raise SystemExit("--length must be at least 2, and --pieces at least 1")
    return args


def main() -> None:
    args = parse_args()
    rows = measure(args)
    headline = {f"perplexity of {one['model']}": f"{one['perplexity']}" for one in rows}
    write_result("perplexity", {"models": rows}, args.output, arguments=args, headline=headline)


if __name__ == "__main__":
    main()
