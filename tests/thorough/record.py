"""The record of all runs: a line of JSON for each, so that hours add up over runs and machines.

A run of another clone joins the record with its line.
"""

import json
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.meta.trees import ROOT

RECORD = Path(__file__).with_name("record.jsonl")
# What a run itself changes; a commit with other changes is not what was tested.
OWN_FILES = ("tests/thorough/record.jsonl", "docs/correctness.md")


@dataclass
class Run:
    """What one run did.

    Attributes:
        commit: Short hash of what was tested, with "+ changes" if the tree had others.
        seconds: Seconds of all parts, which is more than passed if some ran at a time.
        rounds: How often each part ran.
        failures: "part, seed" of each part that failed.
        counts: Examples by file and test.
        seen: What `tests.support.sometimes` saw.
    """

    commit: str
    started: str
    seed: int
    seconds: float = 0.0
    rounds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, part: str, seconds: float, told: dict[str, Any]) -> None:
        """A part has ended, and told what it ran (`pytest --counts`)."""
        self.seconds = round(self.seconds + seconds, 1)
        self.rounds[part] += 1
        self.seen.update(told.get("seen", {}))
        for test, count in told.get("counts", {}).items():
            file, _, name = test.partition("::")
            self.counts.setdefault(file, Counter())[name] += count


def begin(seed: int) -> Run:
    """A run of what lies in the checkout."""
    commit = _git("rev-parse", "--short=9", "HEAD").strip() or "unknown"
    changed = [line[3:] for line in _git("status", "--porcelain").splitlines()]
    if set(changed) - set(OWN_FILES):
        commit += " + changes"
    return Run(commit, time.strftime("%Y-%m-%d %H:%M", time.gmtime()), seed)


def read(path: Path = RECORD) -> list[Run]:
    """All runs, the oldest first; none without a file."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [_run(json.loads(line)) for line in lines]


def write(runs: list[Run], path: Path = RECORD) -> None:
    """The whole record; a run that goes on is written after each of its parts."""
    lines = [json.dumps(vars(run), separators=(",", ":")) + "\n" for run in runs]
    path.write_text("".join(lines), "utf-8")


def examples(runs: list[Run]) -> Counter[str]:
    """Examples of each test in all runs, by `path::name`."""
    total: Counter[str] = Counter()
    for run in runs:
        for file, counts in run.counts.items():
            total.update({f"{file}::{name}": count for name, count in counts.items()})
    return total


def _run(values: dict[str, Any]) -> Run:
    counts = {file: Counter(tests) for file, tests in values.pop("counts").items()}
    rounds, seen = Counter(values.pop("rounds")), Counter(values.pop("seen"))
    return Run(**values, rounds=rounds, seen=seen, counts=counts)


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
