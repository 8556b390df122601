"""What a draft model is worth on a CPU, where reading its weights is what a guess costs.

    python -m benchmarks.speculation.draft_model --save
    python -m benchmarks.speculation.draft_model --smoke     few tokens, nothing kept

The target is SmolLM2, decoded. Two models guess for it: the file that it was decoded from, whose
weights of 4 bits are the same numbers in fewer bytes; and itself without 8 of its 30 layers, which
costs nearly as much as it does. An engine with the draft model and one without take turns in one
process, one request at a time, and each answer must be the same.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.compare.checkpoint import hf_directory
from benchmarks.compare.environments import folder
from benchmarks.compare.workloads import FIRST_TOKEN
from benchmarks.report import write_result
from benchmarks.speculation import measure, texts
from benchmarks.speculation.coupling import without_layers
from benchmarks.speculation.forced import Known
from jax_engine import LLM, SamplingParams
from jax_engine.models.checkpoints.default_model import default_model_path

DROPPED = 8  # middle layers that one of the draft models lacks


def run(size: int, count: int) -> dict[str, Any]:
    """What each draft model gains in each dtype, on texts with much to copy and with nothing."""
    model = hf_directory(folder() / "checkpoints")
    found: dict[str, Any] = {}
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
                for kind, one in _on_texts(plain, guessing, size, count).items():
                    found[f"{dtype}, {name}, {kind}"] = one
                    print(f"{dtype}, {name}, {kind}: {one}", flush=True)
    return found


def _on_texts(plain: LLM, guessing: LLM, size: int, count: int) -> dict[str, Any]:
    params = SamplingParams(temperature=0.0, max_tokens=size)
    kinds = {"code edits": texts.code_edits(), "chat": texts.chat()}
    found = {}
    for kind, asked in kinds.items():
        prompts = measure.chat_prompts(plain, asked[:count])
        # Compiles what prompts of these lengths take, with other tokens in them
        others = [[FIRST_TOKEN] * len(one) for one in prompts]
        short = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
        measure.one_by_one(plain, guessing, others, short, Known())
        found[kind] = measure.one_by_one(plain, guessing, prompts, params, Known())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speculation.draft_model",
        description=(__doc__ or "").splitlines()[0],
    )
    parser.add_argument("--smoke", action="store_true", help="few tokens, nothing kept")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    result = run(*((8, 1) if args.smoke else (96, 5)))
    if args.save:
        write_result("speculation_draft_model", result, arguments=args)


if __name__ == "__main__":
    main()
