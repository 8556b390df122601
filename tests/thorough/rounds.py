"""Goes through the parts, round after round, until the time is up or a part fails."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.meta.trees import ROOT
from tests.thorough.parts import PARTS, Part, seed_of, variables_for
from tests.thorough.record import Run

LONGEST = 3 * 3600  # seconds of a part, on a machine with much else to do; what takes longer hangs


@dataclass(frozen=True)
class Outcome:
    """How one part ended: what it printed, and what `pytest --counts` wrote."""

    part: Part
    seed: int
    passed: bool
    seconds: float
    printed: str
    told: dict[str, Any]


def run_part(part: Part, seed: int) -> Outcome:
    """In a process of its own."""
    begun, ended, printed = time.monotonic(), 1, ""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.json"
        command = [sys.executable, *part.command(seed, "--counts", str(counts))]
        try:
            done = subprocess.run(
                [*command, "-p", "no:cacheprovider"],
                cwd=ROOT,
                env=variables_for(part, seed, ROOT),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LONGEST,
                check=False,
            )
            ended, printed = done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            printed = f"it did not end within {LONGEST} s"
        told = json.loads(counts.read_text("utf-8")) if counts.exists() else {}
    return Outcome(part, seed, ended == 0, time.monotonic() - begun, printed, told)


def run_rounds(
    run: Run,
    minutes: float,
    parts: Sequence[Part] = PARTS,
    *,
    jobs: int = 1,
    keep: Callable[[], None] = lambda: None,
    show: Callable[[str], None] = print,
) -> bool:
    """Whether nothing failed. Parts begin until the time is up, at least one of them.

    Args:
        run: What happens is added to it.
        jobs: How many parts run at a time.
        keep: Called when a part has been added to `run`.
        show: Gets a line when a part has ended, and all that it printed when it failed.
    """
    ends = time.monotonic() + 60 * minutes

    def take_turns(jobs_left: Iterator[tuple[Part, int]]) -> list[Outcome]:
        chosen = [next(jobs_left, None) for _ in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(lambda one: run_part(*one), filter(None, chosen)))

    jobs_left = _endless(parts, run.seed)
    while outcomes := take_turns(jobs_left):
        for outcome in outcomes:
            run.add(outcome.part.name, outcome.seconds, outcome.told)
            if not outcome.passed:
                run.failures.append(f"{outcome.part.name}, {outcome.seed}")
            show(_line(outcome))
        keep()
        if run.failures or time.monotonic() > ends:
            break
    return not run.failures


def _endless(parts: Sequence[Part], run_seed: int) -> Iterator[tuple[Part, int]]:
    """Each part of each round with its seed; none, when all were to run once."""
    for number in count():
        chosen = [part for part in parts if number == 0 or not part.once]
        if not chosen:
            return
        yield from ((part, seed_of(part, number, run_seed)) for part in chosen)


def _line(outcome: Outcome) -> str:
    part, seed = outcome.part, outcome.seed
    total = sum(outcome.told.get("counts", {}).values())
    how = "passed" if outcome.passed else "FAILED"
    line = f"{part.name:<18} seed {seed:<10} {how} {outcome.seconds:6.0f} s {total:>8,} examples"
    if outcome.passed:
        return line
    return f"{outcome.printed}\n{line}\nrepeat it: {part.repeated(seed)}"
