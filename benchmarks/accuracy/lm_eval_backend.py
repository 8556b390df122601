"""lm-eval's own vLLM backend on this engine, through `jax_engine.compat.vllm`.

lm-eval is run as its users run it, unchanged, in an environment of its own: `lm-eval run --model
vllm`. Its tasks are made of the questions of `benchmarks.accuracy`, since those that it would
download are on a hub. Each choice's log-likelihood is compared with this project's own, and so is
which one is taken.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.accuracy.benchmark import MARGIN, best, margin, means, our_scores, wrong
from benchmarks.accuracy.questions import TASKS, Question, Row, questions, rows
from benchmarks.compare.environments import folder
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.report import ROOT
from benchmarks.vllm_examples.environment import interpreter
from benchmarks.vllm_examples.models import local_directory
from jax_engine import LLM

MAX_MODEL_LEN = 1024


def write_task(place: Path, name: str, asked: list[Question]) -> None:
    """A task of lm-eval's: its YAML, and the questions as JSON lines."""
    data = place / f"{name}.jsonl"
    lines = [
        json.dumps({"query": one.context, "choices": one.choices, "gold": one.answer})
        for one in asked
    ]
    data.write_text("\n".join(lines) + "\n", "utf-8")
    task = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "output_type": "multiple_choice",
        "test_split": "test",
        "doc_to_text": "query",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    }
    (place / f"{name}.yaml").write_text(json.dumps(task, indent=1), "utf-8")  # JSON is YAML


def run_lm_eval(place: Path, tasks: list[str]) -> dict[str, Any]:
    """Runs lm-eval's command; its results, and by task the log-likelihoods of each question."""
    python = interpreter()
    model = f"pretrained={local_directory(folder() / 'vllm-examples')},dtype=float32"
    command = [python, "-m", "jax_engine.compat.vllm", str(Path(python).with_name("lm-eval"))]
    command += ["run", "--model", "vllm"]
    command += ["--model_args", f"{model},max_model_len={MAX_MODEL_LEN}"]
    command += ["--tasks", ",".join(tasks), "--include_path", str(place), "--batch_size", "auto"]
    command += ["--output_path", str(place / "out"), "--log_samples"]
    environment = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "HF_HOME": str(place / "home")}
    subprocess.run(command, check=True, env=os.environ | environment)
    (results,) = (place / "out").rglob("results_*.json")
    found = json.loads(results.read_text("utf-8"))
    samples = {}
    for task in tasks:
        (file,) = (place / "out").rglob(f"samples_{task}_*.jsonl")
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        lines.sort(key=lambda one: one["doc_id"])
        samples[task] = [[float(choice[0][0]) for choice in one["resps"]] for one in lines]
    return {"results": found["results"], "version": found["lm_eval_version"], "sums": samples}


def compared(
    asked: list[Question], batch: list[Row], ours: list[float], theirs: list[list[float]]
) -> dict[str, Any]:
    """How far log-likelihoods are apart, and what is taken by either."""
    flat = [value for choices in theirs for value in choices]
    mine, lm_eval = means(asked, batch, ours), means(asked, batch, flat)
    differ = [
        (one.name, margin(x))
        for one, x, y in zip(asked, mine, lm_eval, strict=True)
        if best(x) != best(y)
    ]
    return {
        "questions": len(asked),
        "ours_percent": _percent(asked, mine),
        "through_lm_eval_percent": _percent(asked, lm_eval),
        "largest_difference": max(abs(a - b) for a, b in zip(ours, flat, strict=True)),
        "other_answers_by_rounding": [name for name, gap in differ if gap < MARGIN],
        "other_answers": [name for name, gap in differ if gap >= MARGIN],
    }


def _percent(asked: list[Question], choices: list[list[float]]) -> float:
    right = [best(values) == one.answer for one, values in zip(asked, choices, strict=True)]
    return round(100 * sum(right) / len(right), 1)


def run(args: argparse.Namespace) -> Iterator[Figures]:
    asked = {task: questions(task)[: args.questions] for task in TASKS}
    names = {task: f"{member}_100" for task, member in TASKS.items()}
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        for task, name in names.items():
            write_task(place, name, asked[task])
        theirs = run_lm_eval(place, list(names.values()))
    model = str(local_directory(folder() / "vllm-examples"))
    llm = LLM(model, dtype="float32", max_model_len=MAX_MODEL_LEN)
    tokenizer = llm.get_tokenizer()
    for task, name in names.items():
        batch = [row for question in asked[task] for row in rows(question, tokenizer)]
        found = compared(asked[task], batch, our_scores(llm, batch), theirs["sums"][name])
        own = {k.split(",")[0]: v for k, v in theirs["results"][name].items() if "acc" in k}
        more = {
            "lm_eval_acc_percent": round(100 * own["acc"], 1),
            "lm_eval_acc_norm_percent": round(100 * own["acc_norm"], 1),
            "peer_versions": {"lm_eval": theirs["version"]},
        }
        yield {task: found | more}


def headline(args: argparse.Namespace, found: Figures) -> dict[str, str]:
    return {
        f"{task} through lm-eval's vLLM backend, {one['questions']} questions": (
            f"{one['through_lm_eval_percent']} %; benchmarks.accuracy {one['ours_percent']} %"
        )
        for task, one in found.items()
    }


BENCHMARK = Benchmark(
    run,
    flags=(flag("--questions", type=int, default=100, help="of each task"),),
    needs="lm-eval in an environment of its own",
    headline=headline,
    files=lambda args, found: {"accuracy_lm_eval": found},
    wrong=wrong,
)
