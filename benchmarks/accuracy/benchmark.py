"""Accuracy by length-normalised log-likelihood, beside transformers (the slides' ARC table).

    python -m benchmarks accuracy --questions 10 --no-transformers

Of each question's choices the one with the highest mean log-probability a token is taken. Both
sides get the same token ids and the same float32 weights, so they must take the same choice, but
where the two best are closer than 1e-3: then rounding decides, and the run says so. Any other
difference is a failure. `--golden` keeps what transformers says for the tests.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.accuracy.questions import EXAMPLES, TASKS, Question, Row, questions, rows
from benchmarks.compare.checkpoint import hf_directory
from benchmarks.compare.environments import PEERS, folder, interpreter
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.report import ROOT
from benchmarks.tiny import measured_llm
from jax_engine import LLM

MARGIN = 1e-3  # of mean log-probabilities: below it rounding may decide
GOLDEN = ROOT / "tests" / "golden" / "accuracy.json"
NUM_GOLDEN = 20  # questions a task


def our_scores(llm: LLM, batch: list[Row]) -> list[float]:
    """Sums over the scored tokens of each row."""
    scored = llm.score_tokens([row.token_ids for row in batch])
    return [
        sum(value for value in values[-row.num_scored :] if value is not None)
        for values, row in zip(scored, batch, strict=True)
    ]


def transformers_scores(batch: list[Row]) -> tuple[list[float], dict[str, str]]:
    """The same from transformers, in an environment of its own (minutes the first time)."""
    python = interpreter(PEERS["transformers"])
    directory = hf_directory(folder() / "checkpoints")
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch) / "rows.json", Path(scratch) / "scores.json"
        source.write_text(json.dumps([[row.token_ids, row.num_scored] for row in batch]), "utf-8")
        script = Path(__file__).with_name("transformers_scores.py")
        subprocess.run([python, script, directory, source, target], check=True)
        answer = json.loads(target.read_text("utf-8"))
    return answer["scores"], answer["versions"]


def means(asked: list[Question], batch: list[Row], sums: list[float]) -> list[list[float]]:
    """Mean log-probability a token of each choice of each question."""
    values = iter(total / row.num_scored for total, row in zip(sums, batch, strict=True))
    return [[next(values) for _ in question.choices] for question in asked]


def best(choices: list[float]) -> int:
    return max(range(len(choices)), key=choices.__getitem__)


def margin(choices: list[float]) -> float:
    first, second = sorted(choices, reverse=True)[:2]
    return first - second


def compare(
    asked: list[Question], ours: list[list[float]], theirs: list[list[float]] | None
) -> dict[str, Any]:
    """Accuracies in per cent, and where the answers differ."""
    found: dict[str, Any] = {"questions": len(asked), "ours_percent": _accuracy(asked, ours)}
    if theirs is None:
        return found
    found["transformers_percent"] = _accuracy(asked, theirs)
    pairs = list(zip(asked, ours, theirs, strict=True))
    found["largest_difference"] = max(
        abs(a - b) for _, x, y in pairs for a, b in zip(x, y, strict=True)
    )
    other = [(one.name, margin(y)) for one, x, y in pairs if best(x) != best(y)]
    found["other_answers_by_rounding"] = [name for name, gap in other if gap < MARGIN]
    found["other_answers"] = [name for name, gap in other if gap >= MARGIN]
    return found


def _accuracy(asked: list[Question], choices: list[list[float]]) -> float:
    right = [best(values) == one.answer for one, values in zip(asked, choices, strict=True)]
    return round(100 * sum(right) / len(right), 1)


def write_golden(task: str, asked: list[Question], batch: list[Row], sums: list[float]) -> None:
    """What transformers says of the first questions, for tests/models/test_accuracy.py."""
    known = json.loads(GOLDEN.read_text("utf-8")) if GOLDEN.exists() else {}
    pairs = iter(zip(batch, sums, strict=True))
    known[task] = []
    for question in asked[:NUM_GOLDEN]:
        choices = [next(pairs) for _ in question.choices]
        known[task].append(
            [[row.token_ids, row.num_scored, round(total, 4)] for row, total in choices]
        )
    GOLDEN.write_text(json.dumps(known, separators=(",", ":")) + "\n", "utf-8")


def run(args: argparse.Namespace) -> Iterator[Figures]:
    with measured_llm(args, dtype="float32", max_model_len=1024) as llm:
        tokenizer = llm.get_tokenizer()
        for task in TASKS:
            asked = (EXAMPLES if args.smoke else questions(task))[: args.questions]
            batch = [row for question in asked for row in rows(question, tokenizer)]
            ours = means(asked, batch, our_scores(llm, batch))
            theirs, versions = None, {}
            if not args.no_transformers:
                sums, versions = transformers_scores(batch)
                theirs = means(asked, batch, sums)
                if args.golden:
                    write_golden(task, asked, batch, sums)
            yield {task: compare(asked, ours, theirs) | {"peer_versions": versions}}


def headline(args: argparse.Namespace, found: Figures) -> dict[str, str]:
    rows = {}
    for task, one in found.items():
        text = f"{one['ours_percent']} %"
        if "transformers_percent" in one:
            text += f"; transformers {one['transformers_percent']} %"
        rows[f"{task}, {one['questions']} questions, SmolLM2 in float32"] = text
    return rows


def wrong(found: Figures) -> str:
    others = any(one.get("other_answers") for one in found.values())
    return "answers differ by more than rounding" if others else ""


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--questions", type=int, default=100, help="of each task"),
        flag("--no-transformers", action="store_true"),
        flag("--golden", action="store_true", help=f"write {GOLDEN.name}"),
    ),
    smoke={"no_transformers": True},
    headline=headline,
    wrong=wrong,
)
