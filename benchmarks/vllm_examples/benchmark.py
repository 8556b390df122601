"""Runs vLLM's own examples on this engine, each as it is, and says which run.

    python -m benchmarks vllm_examples --only basic/ --python .venv/bin/python

An example that imports PyTorch needs an interpreter that has it: by default one of an environment
of its own, made the first time (gigabytes).
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.compare.environments import folder
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.vllm_examples.environment import interpreter
from benchmarks.vllm_examples.models import hub_cache
from benchmarks.vllm_examples.run import in_order, run_example
from benchmarks.vllm_examples.source import VERSION, examples, fetched


def run(args: argparse.Namespace) -> Iterator[Figures]:
    source = (args.source or fetched()).absolute()
    python = str(args.python or interpreter())
    home = hub_cache((folder() / "vllm-examples").absolute())
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        scratch = (args.keep or Path(temporary)).absolute()
        scratch.mkdir(parents=True, exist_ok=True)
        for path in in_order([one for one in examples(source) if args.only in one]):
            outcome = run_example(
                source, path, python=python, home=home, scratch=scratch, limit_s=args.limit
            )
            found.append(asdict(outcome))
            yield of_all(found)


def of_all(found: list[dict[str, Any]]) -> Figures:
    """The figures: all examples by their paths, and how many run."""
    in_place = sorted(found, key=lambda one: str(one["path"]))
    return {"vllm": VERSION, "runs": sum(one["runs"] for one in found), "examples": in_place}


def merge(args: argparse.Namespace, saved: Figures, new: Figures) -> Figures:
    """Examples that were not run now stay as they were saved."""
    paths = {one["path"] for one in new["examples"]}
    others = [one for one in saved["examples"] if one["path"] not in paths]
    return of_all([*new["examples"], *others]) if args.only else new


def show(part: Figures) -> str:
    return f"{part['runs']} of {len(part['examples'])} run; " + ", ".join(
        f"{one['path']}: {one['need']}" for one in part["examples"] if one["need"]
    )


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--source", type=Path, help="vLLM's examples/; fetched if not given"),
        flag("--only", default="", help="paths with this in them; of others, the saved stays"),
        flag("--python", type=Path, help="the interpreter of the examples"),
        flag("--limit", type=float, default=300, help="seconds for one example"),
        flag("--keep", type=Path, help="a folder for what the examples print and leave"),
    ),
    needs="vLLM's source distribution and PyTorch; tests/meta/test_vllm_examples.py runs a few",
    merge=merge,
    show=show,
)
