"""What quantisation costs: perplexity and HellaSwag of the default model in each format.

    python -m benchmarks accuracy.quantised w4a16 Q4_1 ./my-model-w4a16

A case is a name of `CASES`, or a model of the same tokens that is quantised already. The default
model's numbers in float32 come first, and others are set beside them. What `jax-engine quantize`
makes of them is kept beside the checkpoints of `benchmarks.compare`. The perplexity is that of
`benchmarks.perplexity`, of the first `--pieces` pieces; calibration does not see that text.
`--save` puts a case into the result as soon as it is measured, beside those of earlier runs.
"""

import argparse
import gc
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.benchmark import best, means, our_scores
from benchmarks.accuracy.questions import EXAMPLES, Question, questions, rows
from benchmarks.compare.checkpoint import quantised_file
from benchmarks.compare.environments import folder
from benchmarks.perplexity import TEXT, cut, negative_logprobs
from benchmarks.registry import Benchmark, Figures, flag, positive
from benchmarks.vllm_examples.models import local_directory
from jax_engine import LLM
from jax_engine.quantize.options import Options
from jax_engine.quantize.run import quantize

FLOATS = "float32"
IN_HEADLINE = (FLOATS, "Q4_1", "w4a16-awq", "w8a8-smooth")
LENGTH = 512  # tokens of a piece


@dataclass(frozen=True)
class Case:
    """A form of the default model.

    Attributes:
        options: how its numbers are quantised; None: they stay floats, or `blocks` says how.
        blocks: the kind of a GGUF file's blocks.
        quantization: what the engine is asked for.
    """

    options: Options | None = None
    blocks: str | None = None
    quantization: str | None = None


CASES = {
    FLOATS: Case(),
    "Q4_1": Case(blocks="Q4_1"),
    "Q4_1-dequantized": Case(blocks="Q4_1", quantization="dequantized"),
    "Q4_0": Case(blocks="Q4_0"),
    "Q4_0-dequantized": Case(blocks="Q4_0", quantization="dequantized"),
    "Q8_0": Case(blocks="Q8_0"),
    "Q8_0-dequantized": Case(blocks="Q8_0", quantization="dequantized"),
    "w4a16": Case(Options("w4a16")),
    "w4a16-awq": Case(Options("w4a16", "awq")),
    "w4a16-gptq": Case(Options("w4a16", "gptq")),
    "w4a16-gptq-act-order": Case(Options("w4a16", "gptq", act_order=True)),
    "awq": Case(Options("awq", "awq")),
    "w8a16": Case(Options("w8a16")),
    "w8a8": Case(Options("w8a8")),
    "w8a8-smooth": Case(Options("w8a8", smoothing_strength=0.5)),
    "fp8": Case(Options("fp8")),
}


@dataclass(frozen=True)
class Found:
    """What a model says: of each token of the text its loss in nats, of each question a choice."""

    losses: np.ndarray
    chosen: list[int]


def model_of(name: str, work: Path) -> Path:
    """The file or directory of a case, quantised unless it is there."""
    case = CASES.get(name)
    if case is None:
        return Path(name)
    if case.blocks is not None:
        return quantised_file(work / "checkpoints", case.blocks)
    source = local_directory(work / "vllm-examples")
    if case.options is None:
        return source
    out = work / "quantised" / name
    if not (out / "config.json").exists():  # it is written last
        quantize(str(source), str(out), case.options)
    return out


def ask(name: str, model: Path, pieces: int, asked: list[Question]) -> Found:
    """Loads the model, and lets go of it."""
    quantization = CASES[name].quantization if name in CASES else None
    llm = LLM(
        str(model), dtype="float32", quantization=quantization, max_model_len=1024, max_num_seqs=4
    )
    tokenizer = llm.get_tokenizer()
    text = cut(tokenizer.encode(TEXT.read_text("utf-8")), LENGTH, pieces)
    batch = [row for question in asked for row in rows(question, tokenizer)]
    choices = means(asked, batch, our_scores(llm, batch))
    found = Found(negative_logprobs(llm, text), [best(one) for one in choices])
    del llm
    gc.collect()
    return found


def row(found: Found, floats: Found, asked: Sequence[Question]) -> dict[str, Any]:
    """Figures of a case beside those of the float model."""
    if len(found.losses) != len(floats.losses):
        raise SystemExit("the model has other tokens than the default model")
    above = math.exp(found.losses.mean() - floats.losses.mean()) - 1
    pairs = zip(found.chosen, asked, strict=True)
    return {
        "perplexity": round(math.exp(found.losses.mean()), 4),
        "perplexity_above_float_percent": round(100 * above, 3),
        "right_answers": sum(chosen == one.answer for chosen, one in pairs),
        "answers_unlike_float": sum(
            a != b for a, b in zip(found.chosen, floats.chosen, strict=True)
        ),
    }


def a_case(text: str) -> str:
    """A type for argparse."""
    if text not in CASES and not Path(text).exists():
        raise argparse.ArgumentTypeError(f"{text} is no model; cases are {', '.join(CASES)}")
    return text


def run(args: argparse.Namespace) -> Iterator[Figures]:
    asked = EXAMPLES if args.smoke else questions("HellaSwag")[: args.questions]
    floats = None
    for name in [FLOATS, *(one for one in args.cases or CASES if one != FLOATS)]:
        found = ask(name, model_of(name, folder()), args.pieces, asked)
        floats = floats or found
        size = {"questions": len(asked), "tokens": len(floats.losses)}
        yield size | {"cases": {Path(name).name: row(found, floats, asked)}}


def merge(args: argparse.Namespace, saved: Figures, new: Figures) -> Figures:
    """Rows of earlier runs stay if they are of as many questions and tokens.

    Cases that have a name are in the order of `CASES`.
    """
    same = all(saved[key] == new[key] for key in ("questions", "tokens"))
    kept = (saved["cases"] if same else {}) | new["cases"]
    order = [*(name for name in CASES if name in kept), *(one for one in kept if one not in CASES)]
    return new | {"cases": {name: kept[name] for name in order}}


def headline(args: argparse.Namespace, found: Figures) -> dict[str, str]:
    what = f"perplexity, and right answers of {found['questions']}, SmolLM2 in"
    return {
        f"{what} {name}": f"{one['perplexity']:.2f}, {one['right_answers']}"
        for name, one in found["cases"].items()
        if name in IN_HEADLINE
    }


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("cases", nargs="*", type=a_case, metavar="CASE", help="a name, or a model (all)"),
        flag("--questions", type=positive(int), default=100, help="of HellaSwag (100)"),
        flag("--pieces", type=positive(int), default=6, help=f"of {LENGTH} tokens (6)"),
    ),
    smoke={"cases": [FLOATS], "pieces": 1},
    headline=headline,
    files=lambda args, found: {"accuracy_quantised": found},
    merge=merge,
)
