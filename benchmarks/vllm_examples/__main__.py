"""Runs vLLM's own examples on this engine, each as it is, and says which run.

    python -m benchmarks.vllm_examples --save
    python -m benchmarks.vllm_examples --only basic/ --python .venv/bin/python

An example that imports PyTorch needs an interpreter that has it: by default one of an environment
of its own, made the first time (gigabytes).
"""

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.compare.environments import folder
from benchmarks.report import RESULTS, load_result, write_result
from benchmarks.vllm_examples.environment import interpreter
from benchmarks.vllm_examples.models import hub_cache
from benchmarks.vllm_examples.run import in_order, run_example
from benchmarks.vllm_examples.source import VERSION, examples, fetched


def _others(paths: set[str]) -> list[dict[str, Any]]:
    """What was saved of the examples that were not run now."""
    saved = load_result("vllm_examples")["result"]["examples"]
    return [one for one in saved if one["path"] not in paths]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, help="vLLM's examples/; fetched if not given")
    parser.add_argument(
        "--only", default="", help="paths with this in them; of others, what was saved stays"
    )
    parser.add_argument("--python", help="the interpreter of the examples")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one example")
    parser.add_argument("--keep", type=Path, help="a folder for what the examples print and leave")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    source = (args.source or fetched()).absolute()
    python = args.python or interpreter()
    home = hub_cache((folder() / "vllm-examples").absolute())
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        scratch = (args.keep or Path(temporary)).absolute()
        scratch.mkdir(parents=True, exist_ok=True)
        for path in in_order([one for one in examples(source) if args.only in one]):
            outcome = run_example(
                source, path, python=python, home=home, scratch=scratch, limit_s=args.limit
            )
            print(f"{path}: {outcome.seconds} s, {outcome.need or 'runs'}", flush=True)
            found.append(asdict(outcome))
    if args.only and (RESULTS / "vllm_examples.json").exists():
        found += _others({one["path"] for one in found})
    found.sort(key=lambda one: one["path"])
    count = sum(one["runs"] for one in found)
    print(f"{count} of {len(found)} run")
    if args.save:
        result = {"vllm": VERSION, "runs": count, "examples": found}
        # Folders of this machine say nothing.
        arguments = vars(args) | {"source": None, "python": None, "keep": None}
        command = "python -m benchmarks.vllm_examples --save"
        write_result("vllm_examples", result, arguments=arguments, command=command)


if __name__ == "__main__":
    main()
