"""Runs vLLM's tests of its server against `jax-engine serve`, and says which fail.

    python -m benchmarks vllm_tests FOLDER --save
    python -m benchmarks vllm_tests FOLDER --only tokenize --python OTHER/bin/python

FOLDER is vLLM's source distribution, unpacked. The tests run as they are, each file in its own
process, with servers of SmolLM2 in place of those that `vllm serve` would start.
"""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.compare.environments import folder
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.vllm_examples.models import (
    CLASSES,
    KINDS,
    LABELS,
    SCORE,
    TOKEN_SCORE,
    local_directory,
)
from benchmarks.vllm_tests.environment import interpreter
from benchmarks.vllm_tests.reasons import out, why
from benchmarks.vllm_tests.run import files, run_file

# Models of the tests that are not for text, as the kinds of the examples.
OTHERS = {
    "BAAI/bge-reranker-base": SCORE,
    "jason9693/Qwen2.5-1.5B-apeach": CLASSES,
    "internlm/internlm2-1_8b-reward": TOKEN_SCORE,
    "boltuix/NeuroBERT-NER": LABELS,
}
LONGEST = 500  # tokens of an answer whose test names no number


def _of_file(path: str, lines: list[dict[str, str]]) -> dict[str, Any]:
    """What is saved of a file: how many tests passed, and why the others did not."""
    failed, skipped = [], []
    for line in lines:
        test = line["test"].partition("::")[2] or "the file"
        if line["outcome"] == "failed":
            reason = why(path, test, line["said"])
            failed.append({"test": test, "reason": reason})
            print(f"    {test}: {reason or 'NO REASON: ' + line['said']}", flush=True)
        elif line["outcome"] == "skipped":
            skipped.append({"test": test, "reason": line["said"]})
    passed = sum(line["outcome"] == "passed" for line in lines)
    return {"path": path, "passed": passed, "failed": failed, "skipped": skipped}


def _models(place: Path) -> dict[str, str]:
    """The folder of each name's stand-in."""
    kinds = {"": next(iter(KINDS))} | OTHERS
    return {name: str(_with_a_length(local_directory(place, kind))) for name, kind in kinds.items()}


def _with_a_length(model: Path) -> Path:
    """A folder with the model's files and a default for the length of its answers.

    Tests that say nothing of it wait for the answer's end, and SmolLM2 may not come to one.
    """
    folder = model.with_name(f"{model.name}-that-ends")
    folder.mkdir(exist_ok=True)
    for file in model.iterdir():
        (folder / file.name).unlink(missing_ok=True)
        (folder / file.name).symlink_to(file)
    settings = json.dumps({"max_new_tokens": LONGEST})
    (folder / "generation_config.json").write_text(settings)
    return folder


def run(args: argparse.Namespace) -> Iterator[Figures]:
    source = args.folder.absolute()
    python = str(args.python or interpreter())
    models = _models((folder() / "vllm-examples").absolute())
    not_run = {path: out(path) for path in files(source) if out(path)}
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        logs = (args.keep or Path(temporary)).absolute()
        logs.mkdir(parents=True, exist_ok=True)
        for path in [one for one in files(source) if args.only in one and not out(one)]:
            log = logs / f"{path.replace('/', '_')}.log"
            lines = run_file(
                source, path, python=python, models=models, log=log, limit_s=args.limit
            )
            print(path, dict(Counter(line["outcome"] for line in lines)), flush=True)
            found.append(_of_file(path, lines))
            version = source.name.partition("-")[2]
            yield {"vllm": version, "files": list(found), "not_run": not_run}


def merge(args: argparse.Namespace, saved: Figures, new: Figures) -> Figures:
    """Files that were not run now stay as they were saved."""
    paths = {one["path"] for one in new["files"]}
    others = [one for one in saved["files"] if one["path"] not in paths and not out(one["path"])]
    every = sorted([*new["files"], *others], key=lambda one: str(one["path"]))
    return new | {"files": every}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("folder", type=Path, help="vLLM's source distribution, unpacked"),
        flag("--python", type=Path, help="the interpreter of the tests; one is made if not given"),
        flag("--only", default="", help="paths with this; of others, the saved stays"),
        flag("--limit", type=int, default=300, help="seconds for one test"),
        flag("--keep", type=Path,
             help="a folder for what the tests say; a file that is there is not run"),
    ),
    needs="vLLM's source distribution",
    merge=merge,
    show=lambda part: "",
)  # fmt: skip
