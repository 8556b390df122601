"""What a draft model is worth on a CPU, where reading its weights is what a guess costs.

The target is SmolLM2, decoded. Two models guess for it: the file that it was decoded from, whose
weights of 4 bits are the same numbers in fewer bytes; and itself without 8 of its 30 layers, which
costs nearly as much as it does. An engine with the draft model and one without take turns in one
process, one request at a time, and each answer must be the same.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.compare.checkpoint import hf_directory
from benchmarks.compare.environments import folder
from benchmarks.compare.workloads import FIRST_TOKEN
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.speculation import measure, texts
from benchmarks.speculation.coupling import without_layers
from benchmarks.speculation.forced import Known
from jax_engine import LLM, SamplingParams
from jax_engine.models.checkpoints.default_model import default_model_path

DROPPED = 8  # middle layers that one of the draft models lacks


def run(args: argparse.Namespace) -> Iterator[Figures]:
    """What each draft model gains in each dtype, on texts with much to copy and with nothing."""
    model = hf_directory(folder() / "checkpoints")
    with tempfile.TemporaryDirectory() as scratch:
        shorter = without_layers(model, Path(scratch) / "draft", DROPPED)
        drafts = {"4 bits": default_model_path(), f"{DROPPED} layers fewer": shorter}
        for dtype in ("float32", "bfloat16"):
            settings = measure.BASE | {"model": str(model), "tokenizer": str(default_model_path())}
            plain = LLM(dtype=dtype, **settings)
            for name, draft in drafts.items():
                config = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": 4}
                guessing = LLM(dtype=dtype, **settings, speculative_config=config)
                measure.compile_small_steps(plain, guessing)
                for kind, one in _on_texts(plain, guessing, args.tokens, args.count):
                    yield {f"{dtype}, {name}, {kind}": one}


def _on_texts(plain: LLM, guessing: LLM, size: int, count: int) -> Iterator[tuple[str, Figures]]:
    params = SamplingParams(temperature=0.0, max_tokens=size)
    kinds = {"code edits": texts.code_edits(), "chat": texts.chat()}
    for kind, asked in kinds.items():
        prompts = measure.chat_prompts(plain, asked[:count])
        # Compiles what prompts of these lengths take, with other tokens in them
        others = [[FIRST_TOKEN] * len(one) for one in prompts]
        short = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
        measure.one_by_one(plain, guessing, others, short, Known())
        yield kind, measure.one_by_one(plain, guessing, prompts, params, Known())


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--tokens", type=int, default=96, help="of an answer"),
        flag("--count", type=int, default=5, help="of texts of each kind"),
    ),
    smoke={"tokens": 8, "count": 1},
)
